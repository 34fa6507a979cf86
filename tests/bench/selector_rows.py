"""The row about selectors: the cost of receiving one message in a hundred."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
from feeding import BATCH, batch_of
from harness import Bench, Line
from kind_rows import Taker, queues, send, with_column

from penstock.broker_core.client.flight import Client
from penstock.broker_core.messages.columns import STRING_MAP

UNIT = "µs/message"
SHADES = 100  # of which a selector matches one


def selector(bench: Bench) -> Iterator[Line]:
    waiting = bench.count(1_000_000, 100_000)
    taken = waiting // SHADES
    shades = pa.array([[("shade", str(i % SHADES)), ("region", "eu-west")] for i in range(BATCH)], STRING_MAP)
    batch = with_column(batch_of(BATCH, 100), "properties", shades)
    with queues(bench, shaded={}, plain={}) as (_, client):
        for queue in ("shaded", "plain"):
            send(client, queue, batch, waiting // BATCH)
        plain = Taker(client, "plain")
        fresh = iter(range(SHADES))

        def cold(_: int = 0) -> float:
            """Each repeat uses a new selector on messages that were read before."""
            return Taker(client, "shaded", selector=f"shade = '{next(fresh)}'").seconds_each(taken) * 1e6

        def unread() -> float:
            """Time for unread messages. The first reader also verifies them, here a hundred for each match."""
            shade = next(fresh)
            queue = f"new {shade}"
            client.call("queue.declare", queue=queue)
            send(client, queue, batch, waiting // BATCH)
            seconds = Taker(client, queue, selector=f"shade = '{shade}'").seconds_each(taken)
            client.call("queue.delete", queue=queue, force=True)
            return seconds * 1e6

        def warm(_: int = 0) -> float:
            """Time for messages that were acquired and given back, and are known."""
            text = f"shade = '{next(fresh)}'"
            Taker(client, "shaded", selector=text, waitMs=0).seconds_each(taken)
            _give_back(client)
            return Taker(client, "shaded", selector=text).seconds_each(taken) * 1e6

        warm(), plain.seconds_each(taken)
        for name, target, ours in (("warm", 3.0, warm), ("cold", 10.0, cold)):
            figures = bench.pairs(UNIT, ours, lambda _: plain.seconds_each(taken) * 1e6)
            looked = "known from before" if name == "warm" else "evaluated for the first time"
            title = f"{taken:,} messages acquired and moved over Flight, 1 in {SHADES} of {waiting:,} by a selector {looked}"
            more = {} if name == "warm" else {f"of messages never read before, {UNIT}": [unread() for _ in range(bench.repeats)]}
            yield Line(
                "selector", title, "as many without a selector, per message", target, None, False, UNIT, *figures, more=more
            )


def _give_back(client: Client) -> None:
    for lease in client.call("lease.list")["leases"]:
        if lease["messages"] and lease["lease"].startswith("shaded") and "waitMs" in lease["lease"]:
            client.call("lease.release", lease=lease["lease"], how="return")
