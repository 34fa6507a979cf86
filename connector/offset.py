"""The offset of a stream, which Spark stores in its checkpoint, by `kind`, with the version `v` of its form.

- `{"v":1,"kind":"initial"}`
- `{"v":1,"kind":"queues","broker":ID,"lease":NAME,"run":ID,"rotation":5,"batches":{"a":3,"b":5},"signs":{"a":"…","b":"…"}}`
- `{"v":1,"kind":"spool","spool":ID,"batch":3,"manifests":{"3":HASH}}`
- `{"v":1,"kind":"brokers","rotation":5,"held":[ID],"brokers":{ID:{"v":1,"kind":"queues",…}}}`
- `{"v":1,"kind":"replay","broker":ID,"queueId":1,"version":7,"after":0,"lineages":…,"next":0,"waits":0,"last":99,"days":[…],
  "times":[…]}`

An offset names durable data, such as batch 3 of a lease. Spark compares offsets as text, so the order of keys is fixed, and
nothing in an offset changes unless its batch changes. Every query starts at the constant `INITIAL`: Spark asks for it again
whenever it plans the first batch again.

To change a form: raise its entry in `VERSIONS`, and add to `UPGRADES` a function from the fields of the previous version.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple

from ..broker_core.archive.read.bounds import Lineages, lineages_of, to_list
from ..broker_core.errors import InvalidRequest, WrongOffset

QUEUES, SPOOL, BROKERS, REPLAY = "queues", "spool", "brokers", "replay"
VERSIONS = {"initial": 1, QUEUES: 1, SPOOL: 1, BROKERS: 1, REPLAY: 1}
#: By kind and version.
UPGRADES: dict[tuple[str, int], Callable[[dict[str, Any]], dict[str, Any]]] = {}

INITIAL: dict[str, Any] = {"v": 1, "kind": "initial"}

_QUERIES = {
    QUEUES: "a query on Penstock",
    SPOOL: "a query on another broker than Penstock, with the option spool",
    BROKERS: "a query over several brokers",
    REPLAY: "a query with mode=replay",
}


def kind_of(data: Mapping[str, Any]) -> str:
    """Raises WrongOffset for anything but an offset, and for another version."""
    if not isinstance(data, Mapping) or "v" not in data:
        raise WrongOffset(f"{data!r} is not an offset of the format amqp: is this the checkpoint of another source?")
    kind, version = data.get("kind"), data["v"]
    if kind is None:
        raise WrongOffset(
            "a development version of Penstock before 0.1.0 wrote this checkpoint: delete the query's lease (`penstock lease"
            " delete LEASE`), and start the query with a new checkpoint"
        )
    if kind not in VERSIONS or not isinstance(version, int) or version > VERSIONS[kind]:
        raise WrongOffset(f"the checkpoint contains an offset of kind {kind!r}, version {version!r}: use a newer connector")
    return str(kind)


def _fields(data: Mapping[str, Any], kind: str) -> dict[str, Any] | None:
    """Return the fields in the current version; None for the initial offset."""
    actual = kind_of(data)
    if actual not in (kind, "initial"):
        raise WrongOffset(
            f"the checkpoint belongs to {_QUERIES[actual]}, and this is {_QUERIES[kind]}: restore the options url, spool and mode"
            " with which the query began, or start with a new checkpoint"
        )
    fields = {name: value for name, value in data.items() if name not in ("v", "kind")}
    for version in range(data["v"], VERSIONS[actual]):
        fields = UPGRADES[actual, version](fields)
    return None if actual == "initial" else fields


def _to_json(kind: str, **fields: Any) -> dict[str, Any]:
    return {"v": VERSIONS[kind], "kind": kind, **fields}


def _check_fields(fields: Mapping[str, Any], names: tuple[str, ...], optional: str | None = None) -> None:
    if set(fields) - {optional} != set(names):
        raise WrongOffset(f"the offset {dict(fields)!r} does not have exactly the fields {', '.join(names)}")


# --- Queues of one broker ----------------------------------------------------------------------------------------------------


class LeaseBatch(NamedTuple):
    """Another copy of the data directory has another sign for this number; None: unknown."""

    number: int
    sign: str | None


NO_BATCH = LeaseBatch(0, None)


class QueuesOffset(NamedTuple):
    """The last batch of each queue that the query has read.

    `rotation` counts the query's batches, and decides which queue is asked first. The lease of `first_queue`, with which a query
    began alone, is named `lease`, that of another queue `lease/queue`.
    """

    broker: str
    lease: str
    run: str
    rotation: int
    batches: Mapping[str, LeaseBatch]
    first_queue: str | None = None

    def lease_of(self, queue: str) -> str:
        return self.lease if queue == self.first_queue else f"{self.lease}/{queue}"

    def of(self, queue: str) -> LeaseBatch:
        return self.batches.get(queue, NO_BATCH)

    def following(self, batches: Mapping[str, LeaseBatch]) -> QueuesOffset:
        return self._replace(rotation=self.rotation + 1, batches={**self.batches, **batches})

    def to_json(self) -> dict[str, Any]:
        numbers = {queue: self.batches[queue].number for queue in sorted(self.batches)}
        signs = {queue: sign for queue in numbers if (sign := self.batches[queue].sign) is not None}
        first = {} if self.first_queue is None else {"firstQueue": self.first_queue}
        names = {"broker": self.broker, "lease": self.lease, "run": self.run}
        return _to_json(QUEUES, **names, rotation=self.rotation, batches=numbers, signs=signs, **first)


def parse_queues(data: Mapping[str, Any]) -> QueuesOffset | None:
    """Return None for the initial offset. Raises WrongOffset."""
    fields = _fields(data, QUEUES)
    if fields is None:
        return None
    _check_fields(fields, ("broker", "lease", "run", "rotation", "batches", "signs"), "firstQueue")
    first_queue, batches, signs = fields.get("firstQueue"), fields["batches"], fields["signs"]
    names = [fields["broker"], fields["lease"], fields["run"], *([] if first_queue is None else [first_queue])]
    if not _are_texts(names) or "" in names:
        raise WrongOffset(f"the offset {dict(data)!r} has an invalid name")
    if not isinstance(batches, Mapping) or not batches or not all(map(_is_count, [fields["rotation"], *batches.values()])):
        raise WrongOffset(f"the offset {dict(data)!r} has no batch number for each queue")
    if not isinstance(signs, Mapping) or not set(signs) <= set(batches) or not _are_texts(signs.values()):
        raise WrongOffset(f"the offset {dict(data)!r} has invalid signs, or signs of other queues")
    read = {queue: LeaseBatch(number, signs.get(queue)) for queue, number in batches.items()}
    return QueuesOffset(fields["broker"], fields["lease"], fields["run"], fields["rotation"], read, first_queue)


def _are_texts(values: Iterable[object]) -> bool:
    return all(isinstance(value, str) for value in values)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0


# --- Another broker ----------------------------------------------------------------------------------------------------------


class SpoolOffset(NamedTuple):
    """`manifests`: each batch since the previous offset that is not lost, ascending, and the hash of its file's manifest.

    The initial offset has an empty id and batch 0.
    """

    spool: str
    batch: int
    manifests: tuple[tuple[int, str], ...] = ()

    @property
    def is_initial(self) -> bool:
        return not self.spool

    def to_json(self) -> dict[str, Any]:
        hashes = {str(batch): manifest for batch, manifest in self.manifests}
        return _to_json(SPOOL, spool=self.spool, batch=self.batch, manifests=hashes)


def parse_spool(data: Mapping[str, Any]) -> SpoolOffset:
    fields = _fields(data, SPOOL)
    if fields is None:
        return SpoolOffset("", 0)
    _check_fields(fields, ("spool", "batch", "manifests"))
    spool, batch, manifests = fields["spool"], fields["batch"], fields["manifests"]
    if not isinstance(spool, str) or not spool or not _is_count(batch):
        raise WrongOffset(f"the offset {dict(data)!r} names no batch of a spool")
    if not isinstance(manifests, Mapping) or not all(_is_manifest(*item) for item in manifests.items()):
        raise WrongOffset(f"the offset {dict(data)!r} has invalid manifests")
    return SpoolOffset(spool, batch, tuple(sorted((int(number), text) for number, text in manifests.items())))


def _is_manifest(number: object, manifest: object) -> bool:
    return isinstance(number, str) and number.isdecimal() and isinstance(manifest, str)


# --- Several brokers ---------------------------------------------------------------------------------------------------------


class BrokersOffset(NamedTuple):
    """For each broker with a batch so far, by its permanent id, the offset in JSON of a query over it alone.

    `rotation` counts the query's batches, and decides which broker is asked first. `held` are the brokers that held a batch when
    the offset was made.
    """

    rotation: int
    held: tuple[str, ...]
    parts: Mapping[str, Mapping[str, Any]]

    def of(self, broker: str) -> Mapping[str, Any]:
        return self.parts.get(broker, INITIAL)

    def to_json(self) -> dict[str, Any]:
        parts = {broker: dict(self.parts[broker]) for broker in sorted(self.parts)}
        return _to_json(BROKERS, rotation=self.rotation, held=sorted(self.held), brokers=parts)


def parse_brokers(data: Mapping[str, Any], *, replay: bool = False) -> BrokersOffset:
    """Also accept the offset of a query over one broker so far. Raises WrongOffset."""
    kind = kind_of(data)
    if kind in ((REPLAY,) if replay else (QUEUES, SPOOL)):
        broker = data.get("broker", data.get("spool"))
        if not isinstance(broker, str):
            raise WrongOffset(f"the offset {dict(data)!r} names no broker")
        return BrokersOffset(0, (broker,), {broker: data})
    fields = _fields(data, BROKERS)
    if fields is None:
        return BrokersOffset(0, (), {})
    _check_fields(fields, ("rotation", "held", "brokers"))
    rotation, held, parts = fields["rotation"], fields["held"], fields["brokers"]
    if not _is_count(rotation) or not isinstance(held, list) or not isinstance(parts, Mapping) or not parts:
        raise WrongOffset(f"the offset {dict(data)!r} has an invalid rotation, or no list of brokers")
    if not all(isinstance(part, Mapping) for part in parts.values()) or any(broker not in parts for broker in held):
        raise WrongOffset(f"the offset {dict(data)!r} does not have an offset of each broker that it names")
    return BrokersOffset(rotation, tuple(held), parts)


# --- Replays -----------------------------------------------------------------------------------------------------------------


class ReplayOffset(NamedTuple):
    """The rows before sequence number `next`, of a fixed set of rows: recordings above `after` in a version of a table.

    `waits` counts empty batches. `last` is the greatest sequence number that the set may contain, so a finished query need not
    open that version, whose log is cleaned up after 30 days. `days` are the first days of arrival from the batch before this
    offset on, and from this offset on; None: unknown. `times` are startingTimestamp and endingTimestamp when the query began, in
    microseconds: a relative time must not move at a restart.
    """

    broker: str
    queue_id: int
    version: int
    after: int
    lineages: Lineages
    next: int
    waits: int = 0
    last: int = -1
    days: tuple[str | None, str | None] = (None, None)
    times: tuple[int | None, int | None] = (None, None)

    def to_json(self) -> dict[str, Any]:
        fields = dict(zip(_REPLAY_FIELDS, self, strict=True))
        return _to_json(
            REPLAY, **{**fields, "lineages": to_list(self.lineages), "days": list(self.days), "times": list(self.times)}
        )


_REPLAY_FIELDS = ("broker", "queueId", "version", "after", "lineages", "next", "waits", "last", "days", "times")


def parse_replay(data: Mapping[str, Any]) -> ReplayOffset | None:
    """Return None for the initial offset. Raises WrongOffset."""
    fields = _fields(data, REPLAY)
    if fields is None:
        return None
    _check_fields(fields, _REPLAY_FIELDS)
    try:
        queue_id, version, after, following, waits, last = (
            int(fields[name]) for name in ("queueId", "version", "after", "next", "waits", "last")
        )
        first_day, next_day = (None if day is None else str(day) for day in fields["days"])
        since, until = (None if time is None else int(time) for time in fields["times"])
        lineages = lineages_of(fields["lineages"])
    except (TypeError, ValueError, InvalidRequest) as error:
        raise WrongOffset(f"{dict(data)!r} is not an offset of mode=replay: {error!r}") from None
    days, times = (first_day, next_day), (since, until)
    return ReplayOffset(str(fields["broker"]), queue_id, version, after, lineages, following, waits, last, days, times)
