"""The offset of a stream: `{"v":1,"broker":…,"lease":…,"run":…,"batch":n}`.

It names durable data: batch n of a lease, under the run that began it. Spark compares offsets as text, so the order of the
keys is fixed, and there is nothing in it that changes without the batch (no epoch). A query begins at `INITIAL`, a constant:
Spark asks for it again whenever the first batch is re-planned.

To change the format: a new `v`, and version 1 still read here, since it stands in checkpoints.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from broker_core.errors import WrongOffset

VERSION = 1
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
        return {"v": VERSION, **names, "batch": self.batch}


INITIAL = Offset("", "", "", 0)


def parse(data: Mapping[str, Any]) -> Offset:
    """The offset that Spark hands back, from its checkpoint perhaps. Raises WrongOffset, naming what is wrong with it."""
    if not isinstance(data, Mapping) or "v" not in data:
        raise WrongOffset(f"{data!r} is not an offset of the format amqp: is this the checkpoint of another source?")
    if data["v"] != VERSION:
        raise WrongOffset(
            f"the checkpoint holds offsets of version {data['v']!r}; this connector reads {VERSION}: use a newer one"
        )
    batch = data.get("batch")
    if not isinstance(batch, int) or isinstance(batch, bool) or batch < 0:
        raise WrongOffset(f"the offset {data!r} has no batch number")
    if set(data) == {"v", "batch"} and batch == 0:
        return INITIAL
    if set(data) != {"v", "batch", *_NAMES} or not all(isinstance(data[name], str) and data[name] for name in _NAMES):
        raise WrongOffset(f"the offset {data!r} does not have exactly the fields v, broker, lease, run and batch")
    return Offset(data["broker"], data["lease"], data["run"], batch)
