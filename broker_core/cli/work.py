"""`penstock work`"""

from __future__ import annotations

import argparse
import importlib
import io
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from types import FrameType

from .. import logs
from ..client.app.opening import connect
from ..client.app.program import at_this_host
from ..client.app.workers import Worker, run_all
from . import login
from .amqp_calls import check_url, credentials_of
from .main import INTERRUPTED, REFUSED, UsageError

log = logging.getLogger("penstock.work")


def run(args: argparse.Namespace) -> int:
    """Exit code 1: a handler did not end in time."""
    logs.begin()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(line_buffering=True)  # output of functions appears immediately
    check_url(args)
    credentials = credentials_of(args)
    workers = [_worker(name) for name in args.workers]
    stop = threading.Event()

    def handle(number: int, frame: FrameType | None) -> None:
        """The first signal stops the workers. The next one ends the process, as safe as a crash."""
        if stop.is_set():
            os._exit(INTERRUPTED)
        # In a thread, because the main one may hold the lock that `set` needs.
        threading.Thread(target=stop.set, daemon=True).start()

    handlers = {number: signal.signal(number, handle) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        if args.metrics_port is not None:
            _serve_metrics(workers, args.metrics_port)
        files = {"ca_file": login.ca_file(args), "cert_file": args.cert_file, "key_file": args.key_file}
        client_id = at_this_host(",".join(args.workers))
        with connect(args.url, credentials.user, credentials.password, client_id=client_id, **files) as connection:
            log.info("working on %s at %s", ", ".join(worker.queue for worker in workers), connection.url)
            ended = run_all(workers, connection, stop, args.grace)
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    for worker in workers:
        counts = worker.counts
        log.info("%s: %d accepted, %d retried, %d rejected", worker.queue, counts.accepted, counts.retried, counts.rejected)
    if not ended:
        log.error("a handler did not end within %g s of the stop; its message is delivered again", args.grace)
        logging.shutdown()
        os._exit(REFUSED)  # a hanging thread would block the interpreter
    return 0


def _worker(name: str) -> Worker:
    module, colon, attribute = name.partition(":")
    if not colon or not attribute or not all(map(str.isidentifier, module.split("."))):
        raise UsageError(f"{name!r} does not name a worker: give MODULE:FUNCTION, such as shop.orders:handle")
    if os.getcwd() not in sys.path:  # as in `python -m`; also for later imports of functions
        sys.path.insert(0, os.getcwd())
    try:
        holder = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is not None and module.startswith(error.name):
            raise UsageError(f"there is no module {error.name!r} in {os.getcwd()} or among the installed packages") from error
        raise
    except (OSError, EOFError) as error:  # elsewhere these errors are about the output or an answer
        raise ImportError(f"{module} cannot be imported: {error}") from error
    try:
        worker = getattr(holder, attribute)
    except AttributeError as error:
        raise UsageError(f"{module} has no {attribute!r}") from error
    if not isinstance(worker, Worker):
        raise UsageError(f'{name} is not a worker: decorate it with @penstock.worker("queue")')
    return worker


def _serve_metrics(workers: list[Worker], port: int) -> None:
    from prometheus_client import CollectorRegistry, start_http_server
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
    from prometheus_client.registry import Collector

    class WorkerMetrics(Collector):
        """The workers' counts."""

        def collect(self) -> Iterator[Metric]:
            messages = CounterMetricFamily("penstock_worker_messages", "Messages handled", labels=["queue", "outcome"])
            seconds = CounterMetricFamily("penstock_worker_handler_seconds", "Time in handlers", labels=["queue"])
            running = GaugeMetricFamily("penstock_worker_running", "Messages in handlers now", labels=["queue"])
            for worker in workers:
                counts = worker.counts
                for outcome in ("accepted", "retried", "rejected", "other"):
                    messages.add_metric([worker.queue, outcome], getattr(counts, outcome))
                seconds.add_metric([worker.queue], counts.seconds)
                running.add_metric([worker.queue], counts.running)
            yield from (messages, seconds, running)

    registry = CollectorRegistry()
    registry.register(WorkerMetrics())
    try:
        server, _ = start_http_server(port, addr="127.0.0.1", registry=registry)
    except OSError as error:
        raise UsageError(f"--metrics-port {port} cannot be used: {error.strerror or error}") from error
    log.info("metrics at http://127.0.0.1:%d/metrics", server.server_port)
