"""The offset of a stream: `{"v":3,"broker":…,"lease":…,"run":…,"queue":"a","batch":n,"sign":"…"}`, and where it reads several
queues `{"v":3,"broker":…,"lease":…,"run":…,"turn":t,"batches":{"a":3,"b":5},"signs":{"a":"…","b":"…"},"firstQueue":"a"}`.

It names durable data: batch n of a lease, under the run that began it; for several queues, the batch of each, whose lease is
`lease/queue`. If the query began with one queue alone, `firstQueue` names it: its lease is still `lease`. The sign tells that
batch from batch n of a copy of the data directory. Spark compares offsets as text, so the order of the keys is fixed, and nothing
in it changes without the batch (so there is no epoch in it). A query begins at `INITIAL`, a constant: Spark asks for it again
whenever the first batch is planned again.

Versions 1 and 2 are the two forms without signs. Checkpoints hold them, and they are still written for batches without a sign,
which an older broker acquired. Offsets of former connectors have neither `queue` nor `firstQueue`. To change the format: take a
new `v`, and keep reading the older ones here.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ..broker_core.errors import WrongOffset

ONE, SEVERAL, SIGNED = 1, 2, 3  # the versions
REPLAYED = 4  # of a query that takes nothing: see `replay`
SPOOLED = 5  # of a query on a broker that is no Penstock: see `foreign.offset`
BROKERS = 6  # over several brokers: see `brokers.offset`
_NAMES = ("broker", "lease", "run")


class Offset(NamedTuple):
    """Batch `batch` of `lease`. In the initial offset, and only there, the names are empty and `batch` is 0."""

    broker: str
    lease: str
    run: str
    batch: int
    sign: str | None = None  # of the batch; None where it has none
    queue: str | None = None  # of the lease; None in the initial offset, and if a former connector wrote it

    @property
    def initial(self) -> bool:
        """True for the offset at which every query begins."""
        return not self.lease

    def at(self, batch: int, sign: str | None = None) -> Offset:
        """Return the offset of another batch of the same lease."""
        return self._replace(batch=batch, sign=sign)

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark keeps in its checkpoint."""
        names = {} if self.initial else {"broker": self.broker, "lease": self.lease, "run": self.run}
        if self.queue is not None:
            names["queue"] = self.queue
        if self.sign is None:
            return {"v": ONE, **names, "batch": self.batch}
        return {"v": SIGNED, **names, "batch": self.batch, "sign": self.sign}


INITIAL = Offset("", "", "", 0)


class Offsets(NamedTuple):
    """A batch of each queue. `turn` counts the query's batches; it decides which queue is asked first."""

    broker: str
    lease: str
    run: str
    turn: int
    batches: tuple[tuple[str, int], ...]  # by name of the queue, ascending
    signs: tuple[tuple[str, str], ...] = ()  # of those batches that have one, likewise
    first_queue: str | None = None  # the only queue that the query began with; None: it began with several

    def lease_of(self, queue: str) -> str:
        """Return the name of a queue's lease."""
        return self.lease if queue == self.first_queue else f"{self.lease}/{queue}"

    def of(self, queue: str) -> Offset:
        """Return the offset of one queue; batch 0 if the query has not read it yet."""
        batch, sign = dict(self.batches).get(queue, 0), dict(self.signs).get(queue)
        return Offset(self.broker, self.lease_of(queue), self.run, batch, sign)

    def with_each(self, offsets: Mapping[str, Offset]) -> Offsets:
        """Return a copy with these queues' own offsets in place of those it had."""
        batches = {**dict(self.batches), **{queue: offset.batch for queue, offset in offsets.items()}}
        signs = {queue: sign for queue, sign in self.signs if queue not in offsets}
        signs |= {queue: offset.sign for queue, offset in offsets.items() if offset.sign is not None}
        return self._replace(batches=tuple(sorted(batches.items())), signs=tuple(sorted(signs.items())))

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark keeps in its checkpoint."""
        names = {"broker": self.broker, "lease": self.lease, "run": self.run}
        fields = {**names, "turn": self.turn, "batches": dict(self.batches)}
        first = {} if self.first_queue is None else {"firstQueue": self.first_queue}
        if self.signs:
            return {"v": SIGNED, **fields, "signs": dict(self.signs), **first}
        return {"v": SEVERAL, **fields, **first}


def parse(data: Mapping[str, Any]) -> Offset | Offsets:
    """Parse an offset that Spark hands back, perhaps from its checkpoint. Raises WrongOffset, which says what is wrong."""
    if not isinstance(data, Mapping) or "v" not in data:
        raise WrongOffset(f"{data!r} is not an offset of the format amqp: is this the checkpoint of another source?")
    if data["v"] == ONE or (data["v"] == SIGNED and "turn" not in data):
        return _one(data)
    if data["v"] in (SEVERAL, SIGNED):
        return _several(data)
    if data["v"] == REPLAYED:
        raise WrongOffset("the checkpoint belongs to a query with mode=replay, which takes nothing: start with a new checkpoint")
    if data["v"] == BROKERS:
        raise WrongOffset(
            "the checkpoint belongs to a query over several brokers, but the option url names one, or it is an offset of one"
            " broker within it: put the option back as it was, or start with a new checkpoint"
        )
    if data["v"] == SPOOLED:
        raise WrongOffset(
            "the checkpoint belongs to a query on a broker that was no Penstock, with batches in its option spool, but a Penstock"
            " stands at the option url: point it at the broker that the query began with, or start with a new checkpoint"
        )
    raise WrongOffset(
        f"the checkpoint holds offsets of version {data['v']!r}; this connector reads {ONE} to {SIGNED}: use a newer one"
    )


def parse_one(data: Mapping[str, Any]) -> Offset:
    """Parse the offset of a query that reads one queue."""
    offset = parse(data)
    if isinstance(offset, Offsets):
        queues = ", ".join(repr(queue) for queue, _ in offset.batches)
        raise WrongOffset(
            f"the checkpoint belongs to a query over several queues ({queues}), but the option queue names one:"
            " put the option back as it was, or start with a new checkpoint"
        )
    return offset


def parse_several(data: Mapping[str, Any]) -> Offsets | None:
    """Parse the offset of a query that reads several queues, or that read one until now; None is the initial one."""
    offset = parse(data)
    if isinstance(offset, Offsets):
        return offset
    if offset.initial:
        return None
    if offset.queue is None:
        raise WrongOffset(
            f"the checkpoint belongs to a query over one queue, with lease {offset.lease!r}. An older version wrote it, and it"
            " does not name the queue: read that queue alone until a batch is done, and add queues then, or start with a new"
            " checkpoint"
        )
    signs = () if offset.sign is None else ((offset.queue, offset.sign),)
    return Offsets(offset.broker, offset.lease, offset.run, 0, ((offset.queue, offset.batch),), signs, offset.queue)


def _one(data: Mapping[str, Any]) -> Offset:
    batch = data.get("batch")
    if not _is_count(batch):
        raise WrongOffset(f"the offset {data!r} has no batch number")
    if set(data) == {"v", "batch"} and batch == 0:
        return INITIAL
    fields = ["v", *_NAMES, "batch", *(["sign"] if data["v"] == SIGNED else [])]
    queue = data.get("queue")
    if set(data) - {"queue"} != set(fields) or not _has_names(data) or not _is_name(queue):
        raise WrongOffset(f"the offset {data!r} does not have exactly the fields {', '.join(fields)}")
    sign = data.get("sign")
    if sign is not None and not _is_sign(sign):
        raise WrongOffset(f"the offset {data!r} has a sign that is none")
    return Offset(data["broker"], data["lease"], data["run"], data["batch"], sign, queue)


def _several(data: Mapping[str, Any]) -> Offsets:
    fields = ["v", *_NAMES, "turn", "batches", *(["signs"] if data["v"] == SIGNED else [])]
    first = data.get("firstQueue")
    if set(data) - {"firstQueue"} != set(fields) or not _has_names(data) or not _is_name(first):
        raise WrongOffset(f"the offset {data!r} does not have exactly the fields {', '.join(fields)}")
    batches = data["batches"]
    if not isinstance(batches, Mapping) or not batches or not all(map(_is_count, [data["turn"], *batches.values()])):
        raise WrongOffset(f"the offset {data!r} has no batch number for each queue")
    signs = data.get("signs", {})
    if not isinstance(signs, Mapping) or not set(signs) <= set(batches) or not all(map(_is_sign, signs.values())):
        raise WrongOffset(f"the offset {data!r} has signs that are none, or of other queues")
    each = tuple(sorted(batches.items())), tuple(sorted(signs.items()))
    return Offsets(data["broker"], data["lease"], data["run"], data["turn"], *each, first)


def _has_names(data: Mapping[str, Any]) -> bool:
    return all(isinstance(data[name], str) and data[name] for name in _NAMES)


def _is_name(value: object) -> bool:
    return value is None or (isinstance(value, str) and bool(value))


def _is_sign(value: object) -> bool:
    return isinstance(value, str) and bool(value)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
