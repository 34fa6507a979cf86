"""Numbers of the broker. All queues are columns of bytes, so a thousand queues cost little here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from .. import __version__
from ..actions.callers import Caller
from ..service import alarms, history, queue_counts
from ..service.broker import BrokerService
from ..service.histograms import BOUNDS_S
from ..settings.keys import Settings

Connected = Mapping[str, Callable[[], int]]  # by protocol


class BrokerNumbers:
    """`connected`: the counts of the broker's connections."""

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
        return answer, table.tobytes()

    def history(self, caller: Caller, wanted: list[str]) -> tuple[dict[str, Any], bytes]:
        """The samples are uint32, by queue, column and sample. Without a wanted queue they are sums over all queues, under
        the name ''."""
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

    def broker(self) -> dict[str, Any]:
        service, recorder, copier = self._service, self._service.recorder, self._service.copier
        segments, alarmed = service.journal.segments(), {alarm.name for alarm in service.alarms.current()}
        return {
            "version": __version__,
            "started": self._started_us / 1e6,
            "connections": {name: count() for name, count in self._connected.items()},
            "leases": len(service.state.leases),
            "exchanges": len(service.state.exchanges.by_name),
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
