"""A data directory of the same rows in one form or the other: as an AMQP client sends them, or as Spark does.

The AMQP messages are stored as by one commit loop of the plane, and decoded once for the rows of Spark.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
from amqp_load import _message
from feeding import BATCH, QUEUE, beside

from penstock.broker_core.engine import commands as c
from penstock.broker_core.messages import batch_checks
from penstock.broker_core.messages.columns import BARE_COLUMNS, SENT_COLUMNS
from penstock.broker_core.messages.encoding import decoding
from penstock.broker_core.messages.encoding.arriving import arrived
from penstock.broker_core.messages.payloads import store, stored_sizes
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

TURN = 250  # messages that one turn of the plane's loop brings, of a client with a window of 1,000
BODY = 96  # octets


def filled(data: Path, messages: int, form: str) -> None:
    """Fill a new data directory from a process of its own: `form` is encoded or columnar."""
    subprocess.run([sys.executable, __file__, str(data), str(messages), form], check=True, env=beside())


def _batches(form: str) -> list[pa.RecordBatch]:
    """`BATCH` messages, durable, with four properties and three application properties, each with its own body."""
    payloads = [_message(number, BODY, True) for number in range(BATCH)]
    if form == "columnar":
        return [batch_checks.validate(_columns(arrived(payloads).batch))]
    return [arrived(payloads[first : first + TURN]).batch for first in range(0, BATCH, TURN)]


def _columns(batch: pa.RecordBatch) -> pa.RecordBatch:
    names = [name for name in SENT_COLUMNS if name in BARE_COLUMNS]
    columns = {name: array for name, array in decoding.readable(batch, names)[0].items() if array.null_count < batch.num_rows}
    return pa.record_batch({**columns, "durable": batch.column("durable")})


def _main(data: str, messages: str, form: str) -> None:
    service = BrokerService(Settings(data=Path(data)))
    service.submit(c.DeclareQueue(QUEUE))
    batches, end = _batches(form), 0
    for _ in range(int(messages) // BATCH):
        for batch in batches:
            service.reserve_space(batch.nbytes)
            sizes: Any = stored_sizes(batch)
            _, end = service.submit_nowait(c.Enqueue(QUEUE, batch.num_rows, sizes, store(batch), True))
    service.journal.wait(end)
    service.close()


if __name__ == "__main__":
    _main(*sys.argv[1:])
