"""Metrics for Prometheus. A test compares them with the list in docs/http.md."""

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
    _Of("penstock_queue_collects_dead_letters", "collects", "1 if another queue sends its dead letters to the queue."),
)
LIMITS = (
    _Of("penstock_queue_limit_messages", "maxMessages", "Limit of the queue's messages, if it has one."),
    _Of("penstock_queue_limit_bytes", "maxBytes", "Limit of the queue's bytes, if it has one."),
)
FILL = "penstock_queue_fill_ratio"
#: Of the columns whose names begin alike; the broker names their reasons.
BY_REASON = (
    _Of("penstock_queue_refused", "refused", "Messages that a sender could not add to the queue, by reason."),
    _Of("penstock_queue_dropped", "dropped", "Messages that the queue dropped, by reason."),
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
    """Metrics of queues. Unchanged lines are reused: prometheus_client takes twenty times as long, which would delay messages."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._names: list[str] = []
        self._labels: list[str] = []
        self._formed: dict[tuple[str, str], _Formed] = {}  # by metric and other labels

    def form(
        self, time: int, names: list[str], columns: dict[str, array[int]], reasons: dict[str, str], *, total_in_help: bool
    ) -> list[bytes]:
        """`reasons`: of the columns of lost messages. `total_in_help`: the help of a counter names its samples, as the older
        format requires."""
        with self._lock:
            if names != self._names:
                self._names, self._labels = names, [f'{{queue="{_escaped(name)}"' for name in names]
                self._formed = {}
            parts = [_described("penstock_queue_messages", "gauge", "Unsettled messages of the queue, by state.")]
            parts += [self._samples("penstock_queue_messages", columns[state], f',state="{state}"') for state in STATES]
            ages = [max(0, time - value) / 1e6 if value else 0 for value in columns["oldest"]]
            parts += self._gauge(OLDEST, "Age of the oldest unsettled message; 0 without one.", ages)
            for gauge in GAUGES:
                parts += self._gauge(gauge.name, gauge.text, columns[gauge.column])
            for limit in LIMITS:
                parts += self._gauge(limit.name, limit.text, [value or None for value in columns[limit.column]])
            shares = [None if value < 0 else value / 1000 for value in columns["fill"]]
            parts += self._gauge(FILL, "Used part of the queue's limits; 1 if it is full.", shares)
            for counter in COUNTERS:
                parts += self._counter(counter.name, counter.text, [(columns[counter.column], "")], total_in_help)
            for counter in BY_REASON:
                labelled = [
                    (columns[column], f',reason="{reason}"')
                    for column, reason in reasons.items()
                    if column.startswith(counter.column)
                ]
                parts += self._counter(counter.name, counter.text, labelled, total_in_help)
            return parts

    def _gauge(self, name: str, text: str, values: Sequence[float | None]) -> list[bytes]:
        return [_described(name, "gauge", text), self._samples(name, values)]

    def _counter(self, name: str, text: str, samples: Sequence[tuple[Sequence[float], str]], total_in_help: bool) -> list[bytes]:
        total = f"{name}_total"
        described = _described(total if total_in_help else name, "counter", text)
        return [described, *(self._samples(total, values, more) for values, more in samples)]

    def _samples(self, metric: str, values: Sequence[float | None], more: str = "") -> bytes:
        """`more`: other labels than the queue. A value None has no line."""
        formed = self._formed.get((metric, more))
        if formed is None:
            lines = [_line(metric, label, more, value) for label, value in zip(self._labels, values, strict=True)]
        elif formed.values == values:
            return formed.text
        else:
            lines = formed.lines
            for at, (value, before) in enumerate(zip(values, formed.values, strict=True)):
                if value != before:
                    lines[at] = _line(metric, self._labels[at], more, value)
        self._formed[metric, more] = formed = _Formed(values, lines, "".join(lines).encode())
        return formed.text


class _Formed(NamedTuple):
    values: Sequence[float | None]
    lines: list[str]
    text: bytes


def text_of(
    header: dict[str, Any], table: bytes, most: int, process: ProcessCollector, queue_text: QueueText, accepted: str
) -> tuple[list[bytes], str]:
    """Return a scrape in parts and its content type, as the client accepts: OpenMetrics or the older format. `most`: queues with
    their own metrics. `queue_text`: earlier lines."""
    openmetrics = OPENMETRICS in accepted
    encoder, kind = choose_encoder(f"{OPENMETRICS}; version=1.0.0" if openmetrics else "")
    columns = CountColumns(header, table)
    names, by_column, rest = columns.limited(most)
    queues = queue_text.form(columns.time, names, by_column, header["reasons"], total_in_help=not openmetrics)
    return [*queues, encoder(_Broker(header["broker"], len(columns.names), rest, process))], kind


def _line(metric: str, label: str, more: str, value: float | None) -> str:
    return "" if value is None else f"{metric}{label}{more}}} {value}\n"


def _described(name: str, kind: str, text: str) -> bytes:
    return f"# HELP {name} {text}\n# TYPE {name} {kind}\n".encode()


def _escaped(name: str) -> str:
    return name.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


class _Broker(Collector):
    """`summed`: number of queues without their own metrics."""

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
        yield from _of_users(broker["users"])
        yield Gauge("penstock_exchanges", "Exchanges.", broker["exchanges"])
        yield from _of_exchanges(broker["exchangeCounts"])
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


def _of_users(users: dict[str, dict[str, int]]) -> Iterator[Metric]:
    """`users`: connections by protocol and user."""
    family = Gauge("penstock_user_connections", "Open connections, by user and protocol.", labels=["user", "protocol"])
    for protocol, counts in users.items():
        for user, count in counts.items():
            family.add_metric([user, protocol], count)
    yield family


def _of_exchanges(exchanges: list[dict[str, Any]]) -> Iterator[Metric]:
    bindings = Gauge("penstock_exchange_bindings", "Bindings of the exchange.", labels=["exchange"])
    messages = Counter("penstock_exchange_messages", "Messages that were sent to the exchange.", labels=["exchange"])
    refused = Counter(
        "penstock_exchange_refused", "Messages that the exchange refused, by reason.", labels=["exchange", "reason"]
    )
    dropped = Counter(
        "penstock_exchange_dropped", "Messages without a matching binding that the exchange dropped.", labels=["exchange"]
    )
    for exchange in exchanges:
        labels = [exchange["exchange"]]
        bindings.add_metric(labels, exchange["bindings"])
        messages.add_metric(labels, exchange["messages"])
        dropped.add_metric(labels, exchange["dropped"])
        for reason, count in exchange["refused"].items():
            refused.add_metric([*labels, reason], count)
    yield from (bindings, messages, refused, dropped)


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
