"""The engine's state at a start: the last snapshot, then the same `apply` for every later event."""

from __future__ import annotations

import logging

from .. import errors
from ..engine import BrokerState, apply
from ..engine.events import codec
from ..engine.model.policies import Policies
from ..journal import Journal
from ..logs import counted

log = logging.getLogger("penstock")


def recovered(journal: Journal, policies: Policies, *, records: bool) -> BrokerState:
    """Return the state that the journal leads to; `policies` and `records` as of `BrokerState`. Raises StorageError."""
    snapshot = journal.snapshot
    state = BrokerState(policies, records=records)
    if snapshot is not None:
        try:
            state = BrokerState.restore(snapshot.meta, snapshot.arrays, policies, records=records)
        except errors.DamagedJournal as error:  # of a newer format
            raise errors.DamagedJournal(f"{error}{journal.written_by}") from None
    position = 0 if snapshot is None else snapshot.position
    for replayed, record in enumerate(journal.replay(position), 1):
        try:
            event = codec.decode(record.meta)
        except errors.DamagedJournal as error:
            raise errors.DamagedJournal(f"{error}, position {record.position}{journal.written_by}") from None
        try:
            apply(state, event, record.position)
        except Exception as error:
            raise errors.StorageError(
                f"the journal's event {event.kind!r} at position {record.position} cannot be applied "
                f"({type(error).__name__}: {error}), so the broker does not start; nothing was changed. It is a fault of "
                "Penstock's, or the directory was changed by hand: keep a copy of it, start the version that wrote it, "
                "and report this"
            ) from error
        if replayed % 1_000_000 == 0:
            log.info("recovery: %s replayed", counted(replayed, "event"))
    return state
