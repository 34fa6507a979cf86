"""Numbers of the broker. All queues are columns of bytes, so a thousand queues cost little."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

import numpy as np

from .. import __version__
from ..actions.callers import Caller
from ..engine.columns.losses import EXCHANGE_REFUSED, UNBOUND
from ..service import alarms, history, queue_counts
from ..service.broker import BrokerService
from ..service.histograms import BOUNDS_S
from ..settings.keys import Settings

MOST_USERS = 100  # with their own metrics: without a users file clients choose the names


class ConnectedPlane(Protocol):
    """For any thread."""

    def count_connections(self) -> int:
        """Include connections without a login."""

    def count_users(self) -> Mapping[str, int]:
        """Count the connections of each user."""


Connected = Mapping[str, ConnectedPlane]  # by protocol


class BrokerNumbers:
    """Numbers of the queues and of the whole broker."""

    def __init__(self, service: BrokerService, settings: Settings, connected: Connected) -> None:
        self._service, self._settings, self._connected = service, settings, connected
        self._started_us = service.wall_ms() * 1000

    def queues(self, caller: Caller) -> tuple[dict[str, Any], bytes]:
        """The counts are columns of int64."""
        counts = self._service.counts.read()
        names, table = counts.names, counts.table
        if not caller.sees_everything():
            visible = [at for at, name in enumerate(names) if caller.sees(name)]
            names, table = [names[at] for at in visible], np.ascontiguousarray(table[:, visible])
        answer = {"time": self._service.wall_ms() * 1000, "columns": queue_counts.COLUMNS, "queues": names}
        return {**answer, "reasons": queue_counts.LOSSES}, table.tobytes()

    def history(self, caller: Caller, wanted: list[str]) -> tuple[dict[str, Any], bytes]:
        """The samples are uint32, by queue, column and sample. Without a wanted queue they are sums over all queues, named ''."""
        rows = self._service.history
        if wanted:
            plot = rows.of([name for name in wanted if caller.sees(name)])
        elif caller.sees_everything():
            plot = rows.of_all()
        else:
            mine = rows.of([name for name in list(self._service.state.queues) if caller.sees(name)])
            plot = history.Plot(mine.time, [""], mine.table.sum(0, dtype=np.uint32, keepdims=True))
        answer = {"time": plot.time, "period": history.PERIOD_S, "columns": history.COLUMNS, "samples": plot.table.shape[2]}
        return {**answer, "queues": plot.names}, plot.table.tobytes()

    def broker(self, caller: Caller) -> dict[str, Any]:
        service, recorder, copier = self._service, self._service.recorder, self._service.copier
        segments, alarmed = service.journal.segments(), {alarm.name for alarm in service.alarms.current()}
        return {
            "version": __version__,
            "started": self._started_us / 1e6,
            "connections": {name: plane.count_connections() for name, plane in self._connected.items()},
            "users": {name: self._of_users(caller, plane.count_users()) for name, plane in self._connected.items()},
            "leases": len(service.state.leases),
            "exchanges": len(service.state.exchanges.by_name),
            "exchangeCounts": self._of_exchanges(caller),
            "journal": {
                "bytes": sum(segment.bytes for segment in segments),
                "segments": len(segments),
                "end": service.journal.end,
                "snapshot": service.journal.snapshot_position,
            },
            "disk": {"free": service.journal.free_bytes(), "mark": self._settings.free_space_mark_bytes},
            "archive": None if recorder is None else recorder.status(),
            "copy": None if copier is None else copier.status(),
            "alarms": {name: name in alarmed for name in alarms.ALARMS},
            "bounds": BOUNDS_S,
            "fsync": service.histograms.fsync.read(),
            "loopDelay": service.histograms.loop_delay.read(),
        }

    @staticmethod
    def _of_users(caller: Caller, counts: Mapping[str, int]) -> dict[str, int]:
        """By user, as far as the caller may know them: the most, and the others together as ''."""
        if not caller.sees_everything():
            counts = {user: count for user, count in counts.items() if user == caller.user}
        users = sorted(counts, key=lambda user: (-counts[user], user))
        others = sum(counts[user] for user in users[MOST_USERS:])
        return {**{user: counts[user] for user in users[:MOST_USERS]}, **({"": others} if others else {})}

    def _of_exchanges(self, caller: Caller) -> list[dict[str, Any]]:
        """Count the exchanges that the caller may see: the most used, and the others together as ''."""
        visible = [exchange for exchange in list(self._service.state.exchanges.by_name.values()) if caller.sees(exchange.name)]
        visible.sort(key=lambda exchange: (-exchange.messages, exchange.name))
        most = self._settings.http_metrics_queues
        groups = [(exchange.name, [exchange]) for exchange in visible[:most]] + [("", visible[most:])] * (len(visible) > most)
        return [
            {
                "exchange": name,
                "bindings": sum(len(exchange.bindings) for exchange in exchanges),
                "messages": sum(exchange.messages for exchange in exchanges),
                "refused": {reason: sum(exchange.losses[reason] for exchange in exchanges) for reason in EXCHANGE_REFUSED},
                "dropped": sum(exchange.losses[UNBOUND] for exchange in exchanges),
            }
            for name, exchanges in groups
        ]
