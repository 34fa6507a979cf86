"""The offset of a stream from a broker that is no Penstock: `{"v":5,"spool":ID,"batch":n}`.

It names batch n of a spool by the id in the spool's `owner.json`: another folder, or one that was emptied and used again, has
another id. To change the format: take a new `v`, and keep reading this one.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from ...broker_core.errors import WrongOffset
from ..offset import INITIAL, SPOOLED


class SpoolOffset(NamedTuple):
    """Batch `batch` of the spool `spool`. In the initial offset, and only there, the id is empty and `batch` is 0."""

    spool: str
    batch: int

    @property
    def initial(self) -> bool:
        """True for the offset at which every query begins."""
        return not self.spool

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark keeps in its checkpoint, of a batch."""
        return {"v": SPOOLED, "spool": self.spool, "batch": self.batch}


def parse_spooled(data: Mapping[str, Any]) -> SpoolOffset:
    """Parse an offset that Spark hands back. Raises WrongOffset, which says what is wrong."""
    if not isinstance(data, Mapping) or "v" not in data:
        raise WrongOffset(f"{data!r} is not an offset of the format amqp: is this the checkpoint of another source?")
    if data == INITIAL.to_json():
        return SpoolOffset("", 0)
    if data["v"] != SPOOLED:
        raise WrongOffset(
            "the checkpoint belongs to a query on a Penstock, but no Penstock stands at the option url: point it at the broker"
            " that the query began with, or start with a new checkpoint"
        )
    spool, batch = data.get("spool"), data.get("batch")
    if set(data) != {"v", "spool", "batch"} or not isinstance(spool, str) or not spool or not _is_count(batch):
        raise WrongOffset(f"the offset {data!r} does not have exactly the fields v, spool, batch")
    return SpoolOffset(spool, int(batch or 0))


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
