"""Apply settings that were read again to a running broker."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from ..settings import changes
from ..settings.keys import Settings

if TYPE_CHECKING:
    from .broker import BrokerService

log = logging.getLogger("penstock")


def reload(service: BrokerService, read: Settings) -> None:
    """Apply the settings that may change at run time. The log lists the changes, and the settings that need a restart."""
    change = changes.change(service.settings, read)
    service.settings = change.settings
    if service.copier is not None:
        service.copier.interval_s = change.settings.copy_interval_s
    if service.recorder is not None:
        service.recorder.change(change.settings)
    summary = ", ".join(f"{name} = {getattr(change.settings, name)}" for name in change.changed) or "nothing has changed"
    logging.getLogger().setLevel(change.settings.log_level.upper())
    log.log(logging.WARNING if change.changed else logging.INFO, "settings read again: %s", summary)
    if change.waiting:
        log.warning("a restart is needed for: %s", ", ".join(change.waiting))
