"""Metrics for Prometheus, from the broker's numbers. A test compares them with the list in docs/http.md."""

from __future__ import annotations

import threading
from array import array
from collections.abc import Iterator, Sequence
from itertools import accumulate
from typing import Any, NamedTuple

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily as Counter
from prometheus_client.core import GaugeMetricFamily as Gauge
from prometheus_client.core import HistogramMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from .counts import STATES, CountColumns


class _Of(NamedTuple):
    """A metric of each queue."""

    name: str
    column: str
    text: str


OPENMETRICS = "application/openmetrics-text"
OLDEST = "penstock_queue_oldest_message_age_seconds"
GAUGES = (
    _Of("penstock_queue_dead_letters", "deadLetters", "Messages in the queue that are dead letters."),
    _Of("penstock_queue_size_bytes", "bytes", "Bytes of the queue's unsettled messages."),
    _Of("penstock_queue_consumers", "consumers", "AMQP links that receive from the queue."),
    _Of("penstock_queue_leases", "leases", "Leases of Spark queries on the queue."),
    _Of("penstock_queue_paused", "paused", "1 while the queue is paused."),
)
COUNTERS = (
    _Of("penstock_queue_enqueued", "enqueued", "Messages that arrived."),
    _Of("penstock_queue_delivered", "delivered", "Deliveries to consumers and leases, including repeated ones."),
    _Of("penstock_queue_redelivered", "redelivered", "Deliveries after the first one of a message."),
    _Of("penstock_queue_redriven", "redriven", "Dead letters that are available again in their own queue."),
    _Of("penstock_queue_acknowledged", "acknowledged", "Messages that a consumer accepted."),
    _Of("penstock_queue_rejected", "rejected", "Messages that a consumer rejected permanently."),
    _Of("penstock_queue_dead_lettered", "deadLettered", "Messages that became dead letters."),
    _Of("penstock_queue_expired", "expired", "Messages that expired."),
    _Of("penstock_queue_removed", "removed", "Messages that were purged, replaced, moved or dropped."),
)


class QueueText:
    """The text of the metrics of queues. Unchanged lines are reused from the previous scrape: prometheus_client takes twenty
    times as long, which would delay messages."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: list[str] = []
        self._labels: list[str] = []
        self._formed: dict[tuple[str, str], _Formed] = {}  # by metric and its other labels

    def form(self, time: int, names: list[str], columns: dict[str, array[int]], *, total_in_help: bool) -> list[bytes]:
        """`total_in_help`: the help of a counter has the name of its samples, as the older format requires."""
        with self._lock:
            if names != self._names:
                self._names, self._labels = names, [f'{{queue="{_escaped(name)}"' for name in names]
                self._formed = {}
            parts = [_described("penstock_queue_messages", "gauge", "Unsettled messages of the queue, by state.")]
            parts += [self._samples("penstock_queue_messages", columns[state], f',state="{state}"') for state in STATES]
            ages = [max(0, time - value) / 1e6 if value else 0 for value in columns["oldest"]]
            parts.append(_described(OLDEST, "gauge", "Age of the oldest unsettled message; 0 without one."))
            parts.append(self._samples(OLDEST, ages))
            for gauge in GAUGES:
                parts += (_described(gauge.name, "gauge", gauge.text), self._samples(gauge.name, columns[gauge.column]))
            for counter in COUNTERS:
                total = f"{counter.name}_total"
                described = _described(total if total_in_help else counter.name, "counter", counter.text)
                parts += (described, self._samples(total, columns[counter.column]))
            return parts

    def _samples(self, metric: str, values: Sequence[float], more: str = "") -> bytes:
        """`more`: other labels than the queue."""
        formed = self._formed.get((metric, more))
        if formed is None:
            lines = [f"{metric}{label}{more}}} {value}\n" for label, value in zip(self._labels, values, strict=True)]
        elif formed.values == values:
            return formed.text
        else:
            lines = formed.lines
            for at, (value, before) in enumerate(zip(values, formed.values, strict=True)):
                if value != before:
                    lines[at] = f"{metric}{self._labels[at]}{more}}} {value}\n"
        self._formed[metric, more] = formed = _Formed(values, lines, "".join(lines).encode())
        return formed.text


class _Formed(NamedTuple):
    """The lines of a metric, and their values."""

    values: Sequence[float]
    lines: list[str]
    text: bytes


def text_of(
    header: dict[str, Any], table: bytes, most: int, process: ProcessCollector, queue_text: QueueText, accepted: str
) -> tuple[list[bytes], str]:
    """Return a scrape in parts and its content type: OpenMetrics or the older format, as the client accepts. `most`: queues
    with their own metrics. `queue_text`: lines of earlier scrapes."""
    openmetrics = OPENMETRICS in accepted
    encoder, kind = choose_encoder(f"{OPENMETRICS}; version=1.0.0" if openmetrics else "")
    columns = CountColumns(header, table)
    names, by_column, rest = columns.limited(most)
    queues = queue_text.form(columns.time, names, by_column, total_in_help=not openmetrics)
    return [*queues, encoder(_Broker(header["broker"], len(columns.names), rest, process))], kind


def _described(name: str, kind: str, text: str) -> bytes:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n".encode()


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class _Broker(Collector):
    """Metrics of the whole broker. `summed`: number of queues without their own metrics."""

    def __init__(self, broker: dict[str, Any], queues: int, summed: int, process: ProcessCollector) -> None:
        self._broker, self._queues, self._summed, self._process = broker, queues, summed, process

    def collect(self) -> Iterator[Metric]:
        yield Gauge("penstock_queues", "Queues of the broker.", self._queues)
        yield Gauge("penstock_queues_summed", "Queues whose numbers are summed under an empty name.", self._summed)
        broker = self._broker
        yield InfoMetricFamily("penstock_build", "The broker's version.", {"version": broker["version"]})
        yield Gauge("penstock_start_time_seconds", "Start of the broker, seconds since 1970.", broker["started"])
        yield _by("penstock_connections", "Open connections, by protocol.", "protocol", broker["connections"])
        yield Gauge("penstock_leases", "Leases of Spark queries.", broker["leases"])
        yield Gauge("penstock_exchanges", "Exchanges.", broker["exchanges"])
        journal, disk, archive, copy = broker["journal"], broker["disk"], broker["archive"], broker["copy"]
        yield Gauge("penstock_journal_size_bytes", "Size of the journal's files.", journal["bytes"])
        yield Gauge("penstock_journal_segments", "Files of the journal.", journal["segments"])
        yield Counter("penstock_journal_written_bytes", "Bytes written to the journal since it began.", journal["end"])
        lag = max(0, journal["end"] - journal["snapshot"])
        yield Gauge("penstock_journal_snapshot_lag_bytes", "Bytes a restart would read.", lag)
        yield Gauge("penstock_disk_free_bytes", "Free bytes of the journal's disk.", disk["free"])
        yield Gauge("penstock_disk_free_mark_bytes", "Free bytes below which messages are refused.", disk["mark"])
        yield _histogram("penstock_journal_fsync_seconds", "Time of a sync of the journal.", broker, "fsync")
        yield _histogram("penstock_amqp_loop_delay_seconds", "Delay of a timer of the AMQP loop.", broker, "loopDelay")
        if archive is not None:
            yield Gauge("penstock_archive_waiting_messages", "Settled messages that wait to be recorded.", archive["unrecorded"])
            yield Gauge("penstock_archive_waiting_bytes", "Bytes of these messages.", archive["unrecordedBytes"])
            yield Gauge("penstock_archive_lag_seconds", "Wait of the oldest of these messages.", archive["lag"])
            yield Counter("penstock_archive_passes", "Commits to tables of the archive.", archive["passes"])
            yield Counter("penstock_archive_recorded_messages", "Messages recorded in the archive.", archive["recorded"])
        if copy is not None:
            yield Gauge("penstock_copy_lag_seconds", "Seconds that the copy is behind.", copy["lagSeconds"])
            yield Gauge("penstock_copy_lag_bytes", "Bytes that the copy lacks.", copy["lagBytes"])
            yield Gauge("penstock_copy_failing_seconds", "Seconds for which its store has failed, or 0.", copy["failingSeconds"])
        yield _by("penstock_alarm", "1 while an alarm of this name is raised.", "name", broker["alarms"])
        yield from self._process.collect()


def _by(name: str, text: str, label: str, values: dict[str, float]) -> Metric:
    family = Gauge(name, text, labels=[label])
    for key, value in values.items():
        family.add_metric([key], value)
    return family


def _histogram(name: str, text: str, broker: dict[str, Any], which: str) -> Metric:
    observed: dict[str, Any] = broker[which]
    bounds = [*(str(float(bound)) for bound in broker["bounds"]), "+Inf"]
    buckets = list(zip(bounds, accumulate(observed["counts"]), strict=True))
    return HistogramMetricFamily(name, text, buckets, observed["seconds"])
