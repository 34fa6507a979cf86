"""The broker's copy in an object store: claimed at the start, completed at the end."""

from __future__ import annotations

import contextlib
import secrets
import threading
import time
from collections.abc import Iterator
from typing import Any

from ..copy.copier import CLOSE_S, Copier
from ..journal import Disk, Journal
from ..settings.keys import Settings
from ..stores.objects import ObjectStore
from ..stores.rate_limit import RateLimitedStore
from ..stores.urls import open_store


def begin(settings: Settings, journal: Journal, disk: Disk, store: ObjectStore | None) -> Copier | None:
    """Claim the copy of the settings, in `store` if given. Raises CopyFenced if another broker has it."""
    if store is None and settings.copy_url is None:
        return None
    store = store or open_store(str(settings.copy_url), settings.data)
    mode: Any = settings.copy
    if mode == "async":  # producers do not wait for the copy
        store = RateLimitedStore(store, settings.copy_bandwidth)
    copier = Copier(store, journal, disk, writer=secrets.token_hex(8), mode=mode, interval_s=settings.copy_interval_s)
    copier.begin()
    return copier


@contextlib.contextmanager
def closing(journal: Journal, copier: Copier | None) -> Iterator[None]:
    """Close all other parts in the with-block; then copy the rest, within `CLOSE_S`, and close the journal. With `copy = "sync"`
    the other parts also wait for the copy, within the same time."""
    until = time.monotonic() + CLOSE_S
    timer = threading.Timer(CLOSE_S, journal.give_up_copy)
    timer.daemon = True
    if copier is not None:
        timer.start()
    try:
        yield
    finally:
        try:
            if copier is not None:
                copier.close(max(0.0, until - time.monotonic()) if copier.mode == "sync" else CLOSE_S)
        finally:
            timer.cancel()
            journal.close()
