"""The offset of a stream from another broker: `{"v":5,"spool":ID,"batch":n,"manifests":{"n":HASH}}`.

It names batch n of a spool by the id in the spool's `owner.json`: another folder, or one that was emptied and used again, has
another id. `manifests` has a hash for the file of each batch since the offset before (`checksums`). It has none for a batch that
was lost or written by a former version; offsets of those versions have no such field. To change the format: take a new `v`, and
keep reading this one.
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
    manifests: tuple[tuple[int, str], ...] = ()  # by batch, ascending

    @property
    def initial(self) -> bool:
        """True for the offset at which every query begins."""
        return not self.spool

    def to_json(self) -> dict[str, Any]:
        """Return the form that Spark keeps in its checkpoint, of a batch."""
        found: dict[str, Any] = {"v": SPOOLED, "spool": self.spool, "batch": self.batch}
        if self.manifests:
            found["manifests"] = {str(batch): manifest for batch, manifest in self.manifests}
        return found


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
    spool, batch, manifests = data.get("spool"), data.get("batch"), data.get("manifests", {})
    fields = {"v", "spool", "batch"}
    if set(data) not in (fields, fields | {"manifests"}) or not isinstance(spool, str) or not spool or not _is_count(batch):
        raise WrongOffset(f"the offset {data!r} does not have exactly the fields v, spool, batch, manifests")
    if not isinstance(manifests, Mapping) or not all(_is_entry(*entry) for entry in manifests.items()):
        raise WrongOffset(f"the offset {data!r} has invalid manifests")
    return SpoolOffset(spool, int(batch or 0), tuple(sorted((int(number), text) for number, text in manifests.items())))


def _is_entry(number: object, manifest: object) -> bool:
    return isinstance(number, str) and number.isdecimal() and isinstance(manifest, str)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value > 0
