"""The row about programs of Azure Service Bus: the broker's CPU time for the vendor's SDK, against plain AMQP."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

from amqp_rows import running
from feeding import beside
from harness import WARM_UPS, Bench, Line, cpu_of_family
from service_bus_program import BATCH

sys.path.append(str(Path(__file__).resolve().parents[1] / "clients"))
from building import command_of

LISTENERS = [{"port": 0}, {"port": 0, "dialect": "service-bus"}]
LIMIT_S = 300


def batches(bench: Bench) -> Iterator[Line]:
    """Batches of 100 in, then each message received and completed."""
    count = bench.count(10_000, 10 * BATCH)
    folder = str(Path(command_of("servicebus")[1]).parent)
    with running(bench, listeners=LISTENERS) as broker:
        port = re.findall(r"amqp://127\.0\.0\.1:(\d+)", broker.log())[-1]
        key = "SharedAccessKeyName=bench;SharedAccessKey=any"
        connection = f"Endpoint=sb://127.0.0.1:{port};{key};UseDevelopmentEmulator=true"

        def cpu(way: str, place: str, _: int) -> float:
            """µs of the broker a message."""
            program = str(Path(__file__).with_name("service_bus_program.py"))
            before = cpu_of_family(broker.pid)
            subprocess.run([sys.executable, program, way, folder, place, str(count)], check=True, env=beside(), timeout=LIMIT_S)
            return (cpu_of_family(broker.pid) - before) / count * 1e6

        vendor, plain = partial(cpu, "vendor", connection), partial(cpu, "plain", broker.amqp_url)
        for _ in range(WARM_UPS):
            vendor(0), plain(0)
        figures = bench.pairs("µs/message", vendor, plain)
    title = f"the broker's CPU time a message: azure-servicebus sends batches of {BATCH}, completes {count:,} of 1 KiB"
    against = "plain AMQP in the same steps"
    yield Line("service-bus", title, against, 1.5, None, False, "µs/message", *figures)
