"""The states of a message and every transition between them: one table, and a missing entry is an error.

DELAYED ──due──▶ AVAILABLE ──acquire──▶ ACQUIRED ──settle──▶ ARCHIVED
        ◀─delay─ ▲ ▲  └──purge, expire, replace, drop────▶ │
                 │ │     and move                           │
                 │ └────────return──────┘                   │
                 └─────────────────redrive──────────────────┘

A failed attempt that waits for its retry returns, and is delayed in the same event. Purge, expire, replace and move concern what
is DELAYED too. From each of the first three a message can be dead-lettered: it is ARCHIVED, and goes on in another queue.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from .rowset import BLOCK_ROWS


class State(IntEnum):
    """Persisted as one byte a message; never renumber."""

    DELAYED = 0  # what nobody has taken is DELAYED or AVAILABLE: `Block.waiting` goes by these numbers
    AVAILABLE = 1
    ACQUIRED = 2
    ARCHIVED = 3


#: The same as plain numbers, for columns: numpy takes four times as long for a member of an enumeration.
DELAYED, AVAILABLE, ACQUIRED, ARCHIVED = (state.value for state in State)


class Verb(IntEnum):
    """Event in the life of a message, after it arrived."""

    DUE = 0  # a delay ends, a transaction commits
    ACQUIRE = 1
    SETTLE = 2  # accepted, rejected
    RETURN = 3  # released, modified, timed out, holder lost
    PURGE = 4
    EXPIRE = 5
    REPLACE = 6  # last-value queue: a newer value came
    REDRIVE = 7
    MOVE = 8  # to another queue
    DEAD_LETTER = 9
    DROP = 10  # the oldest of a ring that is full
    DELAY = 11  # it came back, and waits for its retry


class Outcome(IntEnum):
    """Why a message is ARCHIVED. Persisted as one byte; never renumber, append only."""

    NONE = 0
    ACCEPTED = 1
    REJECTED = 2
    PURGED = 3
    EXPIRED = 4
    REPLACED = 5
    DEAD_LETTERED = 6
    MOVED = 7  # to another queue, or back to the one it came from
    DROPPED = 8  # one of the oldest in a full ring


OUTCOME_CODES = max(Outcome) + 1  # entries of a table by outcome


class Cause(IntEnum):
    """Why a message comes back. Persisted in events; append only."""

    RELEASED = 0
    MODIFIED = 1
    LOCK_TIMED_OUT = 2
    LINK_LOST = 3
    BROKER_LOST = 4
    ROLLBACK = 5
    LEASE_UNREAD = 6
    LEASE_READ = 7
    MODIFIED_UNCOUNTED = 8  # modified, without delivery-failed
    REJECTED = 9  # where the queue's policy is to deliver it again
    MODIFIED_BY_DEFAULT = 10  # MODIFIED, by the source's default outcome when the link ended
    REJECTED_BY_DEFAULT = 11  # REJECTED, by the source's default outcome when the link ended
    PREFETCHED = 12  # the link was lost, and its client had not begun to work on the message
    LINK_CLOSED = 13  # the broker ended the link for a reason of its own: an operator closed it, or withdrew its rights


class Reason(IntEnum):
    """Why a message is a dead letter. Persisted as one byte; never renumber, append only.

    A member's name is public: in lower case it is the annotation `x-opt-death-reason`, so never rename one.
    """

    NONE = 0
    REJECTED = 1
    DELIVERY_LIMIT = 2  # its last attempt has failed
    EXPIRED = 3
    REFUSED = 4  # by every link of the queue
    MALFORMED = 5  # no reader could decode it


TRANSITIONS: dict[tuple[State, Verb], State] = {
    (State.DELAYED, Verb.DUE): State.AVAILABLE,
    (State.DELAYED, Verb.EXPIRE): State.ARCHIVED,
    (State.DELAYED, Verb.PURGE): State.ARCHIVED,
    (State.DELAYED, Verb.REPLACE): State.ARCHIVED,
    (State.AVAILABLE, Verb.ACQUIRE): State.ACQUIRED,
    (State.AVAILABLE, Verb.PURGE): State.ARCHIVED,
    (State.AVAILABLE, Verb.EXPIRE): State.ARCHIVED,
    (State.AVAILABLE, Verb.REPLACE): State.ARCHIVED,
    (State.AVAILABLE, Verb.DROP): State.ARCHIVED,
    (State.AVAILABLE, Verb.DELAY): State.DELAYED,
    (State.DELAYED, Verb.MOVE): State.ARCHIVED,
    (State.AVAILABLE, Verb.MOVE): State.ARCHIVED,
    (State.DELAYED, Verb.DEAD_LETTER): State.ARCHIVED,
    (State.AVAILABLE, Verb.DEAD_LETTER): State.ARCHIVED,
    (State.ACQUIRED, Verb.DEAD_LETTER): State.ARCHIVED,
    (State.ACQUIRED, Verb.SETTLE): State.ARCHIVED,
    (State.ACQUIRED, Verb.RETURN): State.AVAILABLE,
    (State.ARCHIVED, Verb.REDRIVE): State.AVAILABLE,
}

# How a message comes back: does the attempt count as unsuccessful? Queue policies (below) refine these rows, they add none.
# An attempt counts if a consumer had begun to work on the message and did not report that it had not. BROKER_LOST never counts:
# after a crash the broker cannot tell which deliveries were only prefetched, and its own end is no failure of any message.
RETURN_COUNTS_ATTEMPT: dict[Cause, bool] = {
    Cause.RELEASED: False,
    Cause.MODIFIED: True,
    Cause.LOCK_TIMED_OUT: True,
    Cause.LINK_LOST: True,
    Cause.BROKER_LOST: False,
    Cause.ROLLBACK: True,
    Cause.LEASE_UNREAD: False,
    Cause.LEASE_READ: True,
    Cause.MODIFIED_UNCOUNTED: False,
    Cause.REJECTED: True,
    Cause.MODIFIED_BY_DEFAULT: True,
    Cause.REJECTED_BY_DEFAULT: True,
    Cause.PREFETCHED: False,
    Cause.LINK_CLOSED: False,
}
COUNTS_BY_RULE: dict[Cause, str] = {  # the rule of the queue that decides instead
    Cause.LOCK_TIMED_OUT: "lock_counts",
    Cause.LINK_LOST: "lost_counts",
}
# After an unsuccessful attempt a message waits for its retry, and the attempt counts towards the queue's limit; for these causes
# only where a rule of the queue says so: a default outcome speaks of what nobody has looked at, as well as of what made its
# consumer fail.
LIMITED_BY_RULE: dict[Cause, str] = {
    Cause.MODIFIED_BY_DEFAULT: "default_outcome_counts",
    Cause.REJECTED_BY_DEFAULT: "default_outcome_counts",
}
# Never towards the limit: a batch fails as a whole, often for a reason that is none of its messages. It waits, though.
UNLIMITED = frozenset({Cause.LEASE_READ})


class Step(NamedTuple):
    """One row of the table, in the form that columns need."""

    source: int
    target: int
    alike: bytes  # the states of a whole block of rows that are all in `source`


STEPS: dict[Verb, tuple[Step, ...]] = {
    verb: tuple(
        Step(source.value, target.value, bytes([source]) * BLOCK_ROWS)
        for (source, row_verb), target in TRANSITIONS.items()
        if row_verb is verb
    )
    for verb in Verb
}
LEGAL = {verb: bytes(step.source for step in steps) for verb, steps in STEPS.items()}  # the states a verb may begin from
