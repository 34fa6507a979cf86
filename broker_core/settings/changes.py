"""Settings that can change while the broker runs: SIGHUP reloads them."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import NamedTuple

from .keys import Settings

LIVE = (
    "log_level",
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


class Change(NamedTuple):
    """Result of a reload."""

    settings: Settings  # with the changed values
    changed: tuple[str, ...]  # keys with a new value
    waiting: tuple[str, ...]  # keys whose new value needs a restart


def change(now: Settings, read: Settings) -> Change:
    """Return the settings with those values of `read` that can change while the broker runs."""
    different = [item.name for item in fields(Settings) if getattr(now, item.name) != getattr(read, item.name)]
    changed = tuple(name for name in different if name in LIVE)
    settings = replace(now, **{name: getattr(read, name) for name in changed})
    return Change(settings, changed, tuple(name for name in different if name not in LIVE))
