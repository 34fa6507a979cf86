"""Settings that were read again, handed to a running broker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..settings import live
from ..settings.keys import Settings

if TYPE_CHECKING:
    from .broker import BrokerService

log = logging.getLogger("penstock")


def reload(service: BrokerService, read: Settings) -> None:
    """Take over what may change while the broker runs; the log says what has, and what needs a restart."""
    found = live.change(service.settings, read)
    service.settings = found.settings
    if service.copier is not None:
        service.copier.interval_s = found.settings.copy_interval_s
    if service.recorder is not None:
        service.recorder.change(found.settings)
    said = ", ".join(f"{name} = {getattr(found.settings, name)}" for name in found.changed) or "nothing has changed"
    logging.getLogger().setLevel(found.settings.log_level.upper())
    log.log(logging.WARNING if found.changed else logging.INFO, "settings read again: %s", said)
    if found.waiting:
        log.warning("a restart is needed for: %s", ", ".join(found.waiting))
