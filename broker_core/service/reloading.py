"""Settings that can change while the broker runs: SIGHUP reloads them. The users' file is reloaded after each change."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING

from ..security.audit import AuditEntry, Origin
from ..settings.keys import Settings

if TYPE_CHECKING:
    from .broker import BrokerService

LIVE = (
    "log_level",
    "audit_bytes",
    "audit_age_s",
    "retention_age_s",
    "retention_bytes",
    "free_space_mark_bytes",
    "free_space_low_bytes",
    "snapshot_every_bytes",
    "copy_interval_s",
    "archive_after_s",
    "archive_file_bytes",
    "archive_retention_age_s",
    "archive_compact_files",
    "archive_vacuum_after_s",
)

log = logging.getLogger("penstock")


def changed_settings(now: Settings, read: Settings) -> tuple[Settings, list[str], list[str]]:
    """Return the settings with the `LIVE` values of `read`, the keys of these changes, and the keys whose changes need a
    restart."""
    different = [item.name for item in fields(Settings) if getattr(now, item.name) != getattr(read, item.name)]
    changed = [name for name in different if name in LIVE]
    settings = replace(now, **{name: getattr(read, name) for name in changed})
    return settings, changed, [name for name in different if name not in LIVE]


def reload(service: BrokerService, read: Settings) -> None:
    settings, changed, waiting = changed_settings(service.settings, read)
    service.settings = settings
    if service.copier is not None:
        service.copier.interval_s = settings.copy_interval_s
    if service.recorder is not None:
        service.recorder.change(settings)
    logging.getLogger().setLevel(settings.log_level.upper())
    changes = {name: getattr(settings, name) for name in changed}
    service.audit.add(AuditEntry(origin=Origin("", "", "signal"), action="settings.reload", object="settings", details=changes))
    summary = ", ".join(f"{name} = {getattr(settings, name)}" for name in changed) or "nothing has changed"
    log.info("settings read again: %s", summary)
    if waiting:
        log.warning("a restart is needed for: %s", ", ".join(waiting))


def users_reloaded(service: BrokerService, changes: Mapping[str, list[str]]) -> None:
    """Record the users that another program has changed, such as `penstock user` with `--users-file`."""
    entry = AuditEntry(
        origin=Origin("", "", "file"),
        action="users.reload",
        object="users",
        details={kind: names for kind, names in changes.items() if names},
    )
    service.audit.add(entry)
