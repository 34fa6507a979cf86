"""The broker's copy elsewhere, by its settings; and what an operator hears of the broker itself."""

from __future__ import annotations

import secrets
import threading
import time
from typing import Any

from ..copy.copier import CLOSE_S, Copier
from ..journal import Disk, Journal
from ..settings.keys import Settings
from ..stores.objects import ObjectStore
from ..stores.rate_limit import RateLimitedStore
from ..stores.urls import open_store
from .alarms import Alarms


def begin(settings: Settings, journal: Journal, disk: Disk, store: ObjectStore | None) -> Copier | None:
    """Claim the copy that the settings ask for, at `store` if one is given. Raises CopyFenced when it is another broker's."""
    if store is None and settings.copy_url is None:
        return None
    store = store or open_store(str(settings.copy_url), settings.data)
    mode: Any = settings.copy
    if mode == "async":  # producers do not wait for the copy, so it leaves them the machine
        store = RateLimitedStore(store, settings.copy_bandwidth)
    copier = Copier(store, journal, disk, writer=secrets.token_hex(8), mode=mode, interval_s=settings.copy_interval_s)
    copier.begin()
    return copier


def start(journal: Journal, copier: Copier | None) -> None:
    """Start the journal, and its copy."""
    journal.start()
    if copier is not None:
        copier.start()


class Closing:
    """The end of a broker. The copy gets `CLOSE_S` for the rest once all else is done. With `sync` what is done before waits for
    the copy too: `CLOSE_S` after the end has begun, nobody does any more."""

    def __init__(self, journal: Journal, copier: Copier | None) -> None:
        self._journal, self._copier = journal, copier
        self._until = time.monotonic() + CLOSE_S
        self._timer = threading.Timer(CLOSE_S, journal.give_up_copy)
        self._timer.daemon = True
        if copier is not None:
            self._timer.start()

    def end(self) -> None:
        """Copy the rest, and close the journal. StorageError as of `Journal.close`."""
        try:
            if self._copier is not None:
                self._copier.close(max(0.0, self._until - time.monotonic()) if self._copier.is_waited_for else CLOSE_S)
        finally:
            self._timer.cancel()
            self._journal.close()


def status_of(journal: Journal, copier: Copier | None, alarms: Alarms) -> dict[str, Any]:
    """Return id and log of the broker, how far its copy is, and what is wrong; `copy` is None where there is none."""
    segments = journal.segments()
    return {
        "broker": journal.broker_id,
        "end": journal.end,
        "journalBytes": sum(segment.bytes for segment in segments),
        "freeBytes": journal.free_bytes(),
        "copy": None if copier is None else copier.status(),
        "alarms": [alarm.to_json() for alarm in alarms.current()],
    }
