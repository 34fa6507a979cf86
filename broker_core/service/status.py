"""The status of a broker: the answer to `penstock status`, the page and the API."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .broker import BrokerService


def status_of(service: BrokerService) -> dict[str, Any]:
    journal, copier = service.journal, service.copier
    return {
        "broker": journal.broker_id,
        "end": journal.end,
        "journalBytes": sum(segment.bytes for segment in journal.segments()),
        "freeBytes": journal.free_bytes(),
        "copy": None if copier is None else copier.status(),
        "alarms": [alarm.to_json() for alarm in service.alarms.current()],
        "startedAt": service.started_ms * 1000,
        "uptimeSeconds": int((service.wall_ms() - service.started_ms) / 1000),
        "listeners": service.listeners,
    }
