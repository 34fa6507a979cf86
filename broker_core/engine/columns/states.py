"""The states of a message, and the table of all transitions between them.

DELAYED ──due──▶ AVAILABLE ──acquire──▶ ACQUIRED ──settle──▶ ARCHIVED
        ◀─delay─ ▲ ▲  └──purge, expire, replace, drop────▶ │
                 │ │     and move                           │
                 │ └────────return──────┘ │ ▲               │
                 │                  defer ▼ │ acquire       │
                 │                     DEFERRED ──purge, …─▶│
                 └─────────────────redrive──────────────────┘

A failed attempt returns, and is delayed until its retry in the same event. Purge, expire, replace and move also apply to DELAYED
messages. A dead letter is ARCHIVED, from any earlier state, and continues in another queue.

DEFERRED messages have no holder, and the state survives links, leases and restarts. A link can acquire them by their sequence
numbers; any return then makes them DEFERRED again. They have left the order of their queue and group. They count towards limits,
and expire only when a link asks for them. Purge, move and redrive include them, and newer values replace them.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple

from .rowset import BLOCK_ROWS


class State(IntEnum):
    """Persisted as one byte: never renumber."""

    DELAYED = 0  # `Block.waiting` relies on the numbers of DELAYED and AVAILABLE
    AVAILABLE = 1
    ACQUIRED = 2
    ARCHIVED = 3
    DEFERRED = 4


#: Plain numbers for columns: numpy is four times slower with members of an enumeration.
DELAYED, AVAILABLE, ACQUIRED, ARCHIVED, DEFERRED = (state.value for state in State)


class Verb(IntEnum):
    """Cause of a transition."""

    DUE = 0
    ACQUIRE = 1
    SETTLE = 2
    RETURN = 3  # released, modified, timed out, holder lost
    PURGE = 4
    EXPIRE = 5
    REPLACE = 6  # by a newer value
    REDRIVE = 7
    MOVE = 8
    DEAD_LETTER = 9
    DROP = 10  # from a full ring
    DELAY = 11  # until its retry, after a return
    DEFER = 12


class Outcome(IntEnum):
    """Final state of an ARCHIVED message. Persisted as one byte: never renumber, only append."""

    NONE = 0
    ACCEPTED = 1
    REJECTED = 2
    PURGED = 3
    EXPIRED = 4
    REPLACED = 5
    DEAD_LETTERED = 6
    MOVED = 7  # to another queue, or back to the one it came from
    DROPPED = 8


OUTCOME_CODES = max(Outcome) + 1


class Cause(IntEnum):
    """Reason for the return of a message. Persisted in events: never renumber, only append."""

    RELEASED = 0
    MODIFIED = 1
    LOCK_TIMED_OUT = 2
    LINK_LOST = 3
    BROKER_LOST = 4
    ROLLBACK = 5
    LEASE_UNREAD = 6
    LEASE_READ = 7
    MODIFIED_UNCOUNTED = 8  # modified, without delivery-failed
    REJECTED = 9  # if the queue's policy is to deliver it again
    MODIFIED_BY_DEFAULT = 10  # by the source's default outcome when the link ended
    REJECTED_BY_DEFAULT = 11  # likewise
    PREFETCHED = 12  # the link was lost before its client began to work on the message
    LINK_CLOSED = 13  # by an operator, or because its rights were withdrawn
    DEFERRED = 14


class Reason(IntEnum):
    """Reason for a dead letter. Persisted as one byte: never renumber, only append.

    The names, in lower case, are values of the public annotation `x-opt-death-reason`: never rename one.
    """

    NONE = 0
    REJECTED = 1
    DELIVERY_LIMIT = 2
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
    (State.ACQUIRED, Verb.DEFER): State.DEFERRED,
    (State.DEFERRED, Verb.ACQUIRE): State.ACQUIRED,
    (State.DEFERRED, Verb.PURGE): State.ARCHIVED,
    (State.DEFERRED, Verb.EXPIRE): State.ARCHIVED,
    (State.DEFERRED, Verb.REPLACE): State.ARCHIVED,
    (State.DEFERRED, Verb.MOVE): State.ARCHIVED,
    (State.DEFERRED, Verb.DEAD_LETTER): State.ARCHIVED,
    (State.ARCHIVED, Verb.REDRIVE): State.AVAILABLE,
}

# Whether a return counts as a failed attempt. The options of the queue (below) refine these rows.
# An attempt counts if a consumer had begun to work on the message and did not report otherwise. BROKER_LOST never counts:
# after a crash the broker cannot distinguish deliveries that were only prefetched, and no message caused the crash.
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
    Cause.DEFERRED: True,  # so that a message that is always deferred becomes a dead letter
}
COUNTS_BY_RULE: dict[Cause, str] = {  # the queue's option that decides instead
    Cause.LOCK_TIMED_OUT: "lock_counts",
    Cause.LINK_LOST: "lost_counts",
}
# The queue's option that decides whether such an attempt has failed: the message waits for its retry, and its limit counts the
# attempt. A default outcome applies to messages that the consumer has not seen, and to messages that made it fail.
LIMITED_BY_RULE: dict[Cause, str] = {
    Cause.MODIFIED_BY_DEFAULT: "default_outcome_counts",
    Cause.REJECTED_BY_DEFAULT: "default_outcome_counts",
}
# They wait, but do not count towards the limit: a batch fails as a whole, often for another reason than its messages.
UNLIMITED = frozenset({Cause.LEASE_READ})


class Step(NamedTuple):
    """A row of the table, for columns."""

    source: int
    target: int
    alike: bytes  # the states of a whole block whose rows are all in `source`


STEPS: dict[Verb, tuple[Step, ...]] = {
    verb: tuple(
        Step(source.value, target.value, bytes([source]) * BLOCK_ROWS)
        for (source, row_verb), target in TRANSITIONS.items()
        if row_verb is verb
    )
    for verb in Verb
}
#: By verb, the states from which it is allowed.
LEGAL = {verb: bytes(step.source for step in steps) for verb, steps in STEPS.items()}
