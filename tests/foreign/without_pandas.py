"""A planner's steps without a broker, as a program: prints how many messages were new at each, and if pandas was imported."""

from __future__ import annotations

import sys
from pathlib import Path

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.deliveries import DeliveryBlock
from penstock.broker_core.amqp.performatives import Properties
from penstock.connector.foreign.arrivals import grouped
from penstock.connector.foreign.consumer import ForeignConsumer
from penstock.connector.offset import SpoolOffset
from penstock.connector.options import Options

PAYLOADS = [Message(properties=Properties(message_id=f"id-{n}"), data=[b"x"]).encode() for n in range(20)]


def planner(spool: Path) -> ForeignConsumer:
    made = ForeignConsumer(Options({"url": "amqp://127.0.0.1:1", "queue": "q,r", "spool": str(spool)}))
    made._spool.enter(SpoolOffset("", 0))
    return made


def new(made: ForeignConsumer, count: int, number: int) -> int:
    """Write the new ones of so many messages as a batch."""
    batch = made._batch_of(list(grouped(0, 0, 1, [DeliveryBlock(0, PAYLOADS[:count])])))
    assert batch is not None
    made._spool.put(number, batch.rows, batch.keys, 100)
    return len(batch.rows.message)


def main(spool: Path) -> None:
    plans = [new(planner(spool), 5, 1)]
    (spool / "keys-1.arrow").unlink()  # so that they are computed
    plans.append(new(planner(spool), 9, 2))
    plans.append(new(planner(spool), 20, 3))
    print(plans, "pandas" in sys.modules)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
