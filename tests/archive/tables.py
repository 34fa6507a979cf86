"""A table as the archiver writes it: passes of archived messages, each one commit."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa

from penstock.broker_core.archive.read.files import OWNER, Table
from penstock.broker_core.archive.table import layout as table
from penstock.broker_core.archive.write.rows import table_rows
from penstock.broker_core.messages import assembly
from penstock.broker_core.messages import columns as message

DAY_US = 86_400_000_000
BROKER = "a-broker"
LINEAGE = "a-lineage"


def archived(payload: dict[str, list[Any]], sequence: list[int], time: list[int], outcome: str | list[str] = "accepted") -> Any:
    """Archived messages, as the broker gives them with `stored: true`; `time` is microseconds since 1970."""
    batch = pa.record_batch({name: pa.array(values, message.MESSAGE_COLUMNS[name]) for name, values in payload.items()})
    return assembly.assemble(
        table.STORED,
        batch,
        {
            "queue": "orders",
            "sequenceNumber": pa.array(sequence),
            "enqueuedTime": pa.array(time),
            "deliveryCount": pa.array([number % 3 for number in sequence], pa.int32()),
            "outcome": outcome if isinstance(outcome, str) else pa.array(outcome),
            "settledTime": pa.array([moment + 5 for moment in time]),
            "error": pa.nulls(len(sequence), pa.string()),
        },
        stored=True,
        malformed={},
    )


def write(
    folder: Path, number: int, batch: pa.RecordBatch, *, queue_id: int = 7, broker: str = BROKER, row_group_rows: int = 1 << 17
) -> Table:
    """Commit one recording; return the table with which the broker would answer then."""
    rows = pa.Table.from_batches([table_rows(batch, {"queueId": queue_id, "pass": number, "lineage": LINEAGE})])
    if not deltalake.DeltaTable.is_deltatable(str(folder)):
        deltalake.DeltaTable.create(
            str(folder),
            table.SCHEMA,
            partition_by=[table.DAY],
            configuration={OWNER: broker, **table.PROPERTIES},
            raise_if_key_not_exists=False,
        )
    deltalake.write_deltalake(
        str(folder),
        rows,
        mode="append",
        partition_by=[table.DAY],
        writer_properties=deltalake.WriterProperties(max_row_group_size=row_group_rows),
    )
    return Table(str(folder), broker, queue_id, ((LINEAGE, number),), deltalake.DeltaTable(folder).version())
