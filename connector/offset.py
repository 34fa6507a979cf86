"""The offset of a stream: `{"v":1,"broker":…,"lease":…,"run":…,"batch":n}`, and where it reads several queues
`{"v":2,"broker":…,"lease":…,"run":…,"turn":t,"batches":{"a":3,"b":5}}`.

It names durable data: batch n of a lease, under the run that began it; of several queues, the batch of each, whose lease is
`lease/queue`. Spark compares offsets as text, so the order of the keys is fixed, and there is nothing in it that changes without
the batch (no epoch). A query begins at `INITIAL`, a constant: Spark asks for it again whenever the first batch is re-planned.

To change the format: a new `v`, and versions 1 and 2 still read here, since they stand in checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker_core.errors import WrongOffset

ONE, SEVERAL = 1, 2  # the versions
_NAMES = ("broker", "lease", "run")


class Offset(NamedTuple):
    """Batch `batch` of `lease`; the names are empty in the initial offset alone, where `batch` is 0."""

    broker: str
    lease: str
    run: str
    batch: int

    @property
    def initial(self) -> bool:
        return not self.lease

    def at(self, batch: int) -> Offset:
        return self._replace(batch=batch)

    def to_json(self) -> dict[str, Any]:
        names = {} if self.initial else {"broker": self.broker, "lease": self.lease, "run": self.run}
        return {"v": ONE, **names, "batch": self.batch}


INITIAL = Offset("", "", "", 0)


class Offsets(NamedTuple):
    """A batch of each queue. `turn` counts the query's batches: which queue is asked first follows from it."""

    broker: str
    lease: str
    run: str
    turn: int
    batches: tuple[tuple[str, int], ...]  # by name of the queue, ascending

    def of(self, queue: str) -> Offset:
        """One queue's own; batch 0 where the query has not read it yet."""
        return Offset(self.broker, f"{self.lease}/{queue}", self.run, dict(self.batches).get(queue, 0))

    def with_batches(self, batches: Mapping[str, int]) -> Offsets:
        """The same, with these batches instead of those of the same queues."""
        return self._replace(batches=tuple(sorted({**dict(self.batches), **batches}.items())))

    def to_json(self) -> dict[str, Any]:
        names = {"broker": self.broker, "lease": self.lease, "run": self.run}
        return {"v": SEVERAL, **names, "turn": self.turn, "batches": dict(self.batches)}


def parse(data: Mapping[str, Any]) -> Offset | Offsets:
    """The offset that Spark hands back, from its checkpoint perhaps. Raises WrongOffset, naming what is wrong with it."""
    if not isinstance(data, Mapping) or "v" not in data:
        raise WrongOffset(f"{data!r} is not an offset of the format amqp: is this the checkpoint of another source?")
    if data["v"] == ONE:
        return _one(data)
    if data["v"] == SEVERAL:
        return _several(data)
    raise WrongOffset(
        f"the checkpoint holds offsets of version {data['v']!r}; this connector reads {ONE} and {SEVERAL}: use a newer one"
    )


def parse_one(data: Mapping[str, Any]) -> Offset:
    """The offset of a query that reads one queue."""
    offset = parse(data)
    if isinstance(offset, Offsets):
        queues = ", ".join(repr(queue) for queue, _ in offset.batches)
        raise WrongOffset(
            f"the checkpoint belongs to a query over several queues ({queues}), but the option queue names one:"
            " put the option back as it was, or start with a new checkpoint"
        )
    return offset


def parse_several(data: Mapping[str, Any]) -> Offsets | None:
    """The offset of a query that reads several queues; None: the initial one."""
    offset = parse(data)
    if isinstance(offset, Offsets):
        return offset
    if not offset.initial:
        raise WrongOffset(
            f"the checkpoint belongs to a query over one queue, with lease {offset.lease!r}, but the option queue names several:"
            " put the option back as it was, or start with a new checkpoint"
        )
    return None


def _one(data: Mapping[str, Any]) -> Offset:
    batch = data.get("batch")
    if not _is_count(batch):
        raise WrongOffset(f"the offset {data!r} has no batch number")
    if set(data) == {"v", "batch"} and batch == 0:
        return INITIAL
    if set(data) != {"v", "batch", *_NAMES} or not _has_names(data):
        raise WrongOffset(f"the offset {data!r} does not have exactly the fields v, broker, lease, run and batch")
    return Offset(data["broker"], data["lease"], data["run"], data["batch"])


def _several(data: Mapping[str, Any]) -> Offsets:
    if set(data) != {"v", "turn", "batches", *_NAMES} or not _has_names(data):
        raise WrongOffset(f"the offset {data!r} does not have exactly the fields v, broker, lease, run, turn and batches")
    batches = data["batches"]
    if not isinstance(batches, Mapping) or not batches or not all(map(_is_count, [data["turn"], *batches.values()])):
        raise WrongOffset(f"the offset {data!r} has no batch number for each queue")
    return Offsets(data["broker"], data["lease"], data["run"], data["turn"], tuple(sorted(batches.items())))


def _has_names(data: Mapping[str, Any]) -> bool:
    return all(isinstance(data[name], str) and data[name] for name in _NAMES)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0
