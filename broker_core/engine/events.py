"""Events are decisions: which rows, which outcome, at what time. They are what the journal holds and `apply` replays.

The record's meta is one JSON object: `k` is the kind, the rest the fields; row sets and arrays have the forms of `to_json`.
Payloads are not part of it. To change an event: add a field with a default (old journals lack it), or a new kind; never give a
field a new meaning.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, fields
from typing import Any, ClassVar

import numpy as np

from broker_core.engine.commands import PublishKey
from broker_core.engine.rowset import RowSet
from broker_core.engine.series import Ints, narrowed
from broker_core.errors import DamagedJournal


@dataclass(frozen=True)
class Event:
    kind: ClassVar[str]
    journaled: ClassVar[bool] = True


@dataclass(frozen=True)
class QueueDeclared(Event):
    kind = "queue.declared"
    queue: str
    type: str
    options: dict[str, Any]


@dataclass(frozen=True)
class QueueDeleted(Event):
    kind = "queue.deleted"
    queue: str


@dataclass(frozen=True)
class Enqueued(Event):
    """With a payload: messages take the places from `first` on."""

    kind = "enqueued"
    queue: str
    first: int
    count: int
    sizes: int | Ints
    time: int
    traits: dict[str, Any] | None = None  # see `Traits.journaled`
    kept: Ints | None = None  # which of the payload's rows they are; None: all of them, in order


@dataclass(frozen=True)
class Staged(Event):
    """With a payload: messages that wait, unseen, for a publish."""

    kind = "staged"
    stage: str
    queue: str
    count: int
    sizes: int | Ints
    up: int
    traits: dict[str, Any] | None = None
    kept: Ints | None = None  # as of Enqueued
    exchange: str | None = None  # they came by this one: a queue that is gone when they are published takes its own along


@dataclass(frozen=True)
class Published(Event):
    """All messages of the stages, in this order, take their places in their queues: all at once or never."""

    kind = "published"
    stages: list[str]
    key: PublishKey | None
    time: int


@dataclass(frozen=True)
class Discarded(Event):
    kind = "discarded"
    stages: list[str]


@dataclass(frozen=True)
class Acquired(Event):
    kind = "acquired"
    queue: str
    holder: int
    rows: RowSet
    lease: str | None = None
    batch: int | None = None


@dataclass(frozen=True)
class Settled(Event):
    """ACQUIRED → ARCHIVED. With a lease: an operator ended these rows of its batch."""

    kind = "settled"
    queue: str
    holder: int
    rows: RowSet
    outcome: int
    time: int
    error: str | None = None
    lease: str | None = None


@dataclass(frozen=True)
class Returned(Event):
    """ACQUIRED → AVAILABLE, to the original place."""

    kind = "returned"
    queue: str
    holder: int
    rows: RowSet
    cause: int
    lease: str | None = None
    annotations: bytes | None = None  # added to those of the messages


@dataclass(frozen=True)
class HoldersLost(Event):
    """After a restart: what the links of the last life held comes back."""

    kind = "holders.lost"
    rows: dict[str, RowSet]
    cause: int


@dataclass(frozen=True)
class Purged(Event):
    kind = "purged"
    queue: str
    rows: RowSet
    time: int
    outcome: int | None = None  # None: PURGED


@dataclass(frozen=True)
class Expired(Event):
    """AVAILABLE or HELD → ARCHIVED: their time has passed."""

    kind = "expired"
    queue: str
    rows: RowSet
    time: int


@dataclass(frozen=True)
class CameDue(Event):
    """HELD → AVAILABLE, at their places: their delay is over."""

    kind = "came.due"
    queue: str
    rows: RowSet
    time: int


@dataclass(frozen=True)
class LeaseBegun(Event):
    """A query without a checkpoint begins: a new lease, or an old name under a new run."""

    kind = "lease.begun"
    lease: str
    queue: str
    run: str
    epoch: int
    timeout: int | None
    up: int
    selector: str | None = None


@dataclass(frozen=True)
class LeaseTaken(Event):
    kind = "lease.taken"
    lease: str
    epoch: int
    timeout: int | None
    up: int


@dataclass(frozen=True)
class BatchRead(Event):
    """A task is about to read: from here on a sink may hold the batch."""

    kind = "batch.read"
    lease: str
    batch: int


@dataclass(frozen=True)
class BatchEnded(Event):
    """The batch's rows are settled (stage SETTLED) or given back (VOID, LOST)."""

    kind = "batch.ended"
    lease: str
    batch: int
    stage: str
    time: int
    exclude: bool = False
    done: RowSet | None = None  # of those that are settled: not these, whose own outcomes stand beside this event


@dataclass(frozen=True)
class LeaseFinished(Event):
    kind = "lease.finished"
    lease: str
    finished: int


@dataclass(frozen=True)
class LeaseFenced(Event):
    """An operator changed what the lease holds: whoever planned before must plan again."""

    kind = "lease.fenced"
    lease: str
    epoch: int


@dataclass(frozen=True)
class LeaseDeleted(Event):
    kind = "lease.deleted"
    lease: str


@dataclass(frozen=True)
class BlockArchived(Event):
    """With a payload, the packed block: it leaves memory."""

    kind = "block.archived"
    queue: str
    number: int
    highest_payload: int
    first_time: int
    last_time: int
    outcomes: list[int]


@dataclass(frozen=True)
class Retained(Event):
    kind = "retained"
    position: int


# Ephemeral events change derived state only and are never journaled.
@dataclass(frozen=True)
class ClockStarted(Event):
    """A new life of the broker: leases and stages count its uptime from here."""

    kind = "clock.started"
    journaled = False
    up: int


@dataclass(frozen=True)
class Renewed(Event):
    kind = "renewed"
    journaled = False
    lease: str
    up: int


@dataclass(frozen=True)
class Subscribed(Event):
    kind = "subscribed"
    journaled = False
    queue: str
    holder: int
    priority: int = 0
    exclusive: bool = False
    selector: str | None = None


@dataclass(frozen=True)
class Looked(Event):
    """A subscription went as far as `places`, and has seen the return logs up to `epochs`: one each a level."""

    kind = "looked"
    journaled = False
    queue: str
    holder: int
    places: list[int]
    epochs: list[int]


@dataclass(frozen=True)
class Locked(Event):
    """Who acquired these just now may hold them until then, in milliseconds of uptime."""

    kind = "locked"
    journaled = False
    queue: str
    rows: RowSet
    until: int


@dataclass(frozen=True)
class TimePassed(Event):
    """What was due up to here has been seen to: delays and expiry in milliseconds since 1970, locks in those of uptime."""

    kind = "time.passed"
    journaled = False
    due: int
    expiry: int
    lock: int


@dataclass(frozen=True)
class Excluded(Event):
    """Not to be offered to this link again."""

    kind = "excluded"
    journaled = False
    queue: str
    holder: int
    rows: RowSet


@dataclass(frozen=True)
class Unsubscribed(Event):
    kind = "unsubscribed"
    journaled = False
    queue: str
    holder: int


@dataclass(frozen=True)
class Together(Event):
    """Several events, decided on one state: all of them happened, or none. None of them has a payload."""

    kind = "together"
    parts: tuple[Event, ...]


_KINDS: dict[str, type[Event]] = {}
# Per kind: how its meta begins; per field: name, how its entry begins, whether None is its default and left out.
_FIELDS: dict[type[Event], tuple[str, tuple[tuple[str, str, bool], ...]]] = {}


def know(*kinds: type[Event]) -> None:
    """Let these be written to the journal, and read from it."""
    for cls in kinds:
        _KINDS[cls.kind] = cls
        _FIELDS[cls] = (f'{{"k":"{cls.kind}"', tuple((f.name, f',"{f.name}":', f.default is None) for f in fields(cls)))


know(*(cls for cls in Event.__subclasses__() if cls.journaled))


_SIMPLE = (str, int, bool, list)
_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def to_json(value: Any) -> Any:
    """A field's value as JSON has it: row sets, arrays and octets in the forms that `from_json` knows."""
    if isinstance(value, _SIMPLE):
        return value
    if isinstance(value, RowSet):
        return {"rows": value.to_json()}
    if isinstance(value, np.ndarray):
        value = narrowed(value) if value.dtype.kind != "S" else value
        return {"array": [value.dtype.str, base64.b64encode(value.tobytes()).decode()]}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {"map": {key: to_json(item) for key, item in value.items()}}
    if type(value) is tuple:
        return {"events": [json.loads(encode(event)) for event in value]}
    return value


def from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "rows" in value:
        return RowSet.from_json(value["rows"])
    if "array" in value:
        dtype, data = value["array"]
        return np.frombuffer(base64.b64decode(data), dtype)
    if "bytes" in value:
        return base64.b64decode(value["bytes"])
    if "events" in value:
        return tuple(_event(body) for body in value["events"])
    return {key: from_json(item) for key, item in value["map"].items()}


def encode(event: Event) -> bytes:
    """The record's meta. A field that may be None and is, is left out: None is its default then."""
    begin, known = _FIELDS[type(event)]
    parts = [begin]
    for name, prefix, optional in known:
        value = getattr(event, name)
        if value is not None or not optional:
            parts += (prefix, _text(value))
    parts.append("}")
    return "".join(parts).encode()


def _text(value: Any) -> str:
    """`to_json` as JSON, without the encoder's price for the numbers and rows of which every command has some."""
    if type(value) is int:
        return str(value)
    if type(value) is RowSet:
        return f'{{"rows":{value.to_text()}}}'
    return _JSON.encode(to_json(value))


def decode(meta: bytes) -> Event:
    return _event(json.loads(meta))


def _event(body: dict[str, Any]) -> Event:
    kind = body.pop("k")
    try:
        cls = _KINDS[kind]
    except KeyError:
        raise DamagedJournal(
            f"the journal holds an event {kind!r} that this Penstock does not know: it was written by a newer version; use "
            "that one"
        ) from None
    values = {name: from_json(value) for name, value in body.items()}
    if values.get("key") is not None:
        values["key"] = PublishKey(*values["key"])
    return cls(**values)
