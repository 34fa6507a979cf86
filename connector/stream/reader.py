"""The stream reader: Spark's planning calls, translated into those of the consumer.

Spark 4.2 calls `commit` only after it has planned the next batch, so never on an idle stream or for the last batch of
`availableNow`. It does not call `stop`. Only `latestOffset(start)` shows that everything before `start` is finished. So
`latestOffset` settles, and `commit` is the same idempotent call.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa
from pyspark.sql.types import StructType

from ...broker_core.client.discovery import Endpoint, LessSafe
from ...broker_core.errors import InvalidOption, PenstockError
from ..access import BrokerAccess
from ..brokers.consumer import BrokersConsumer
from ..foreign.consumer import ForeignConsumer
from ..foreign.partition import SpoolPartition
from ..foreign.reading import read_spooled
from ..offset import BROKERS
from ..options import STREAM, Options
from ..reporting import reports_errors
from ..schema import check_source
from ..spark_versions import InputPartition, ReadAllAvailable, ReadLimit, ReadMaxRows
from ..task.declared import DeclaredRows
from ..task.partition import LeasePartition
from ..task.reading import read_leased
from .consumer import QueuesConsumer
from .credit import Credit
from .lease import LONG_POLL_MS
from .protocols import BrokerConsumer, StreamConsumer
from .start_tracking import TrackedReader

_NO_LIMIT = 2**63 - 1


@reports_errors
class StreamReader(TrackedReader):
    """Reader that connects at its first call: it is also constructed in planning workers, and pickled into tasks."""

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_for(STREAM)
        check_source(schema, stream=True)
        self._options = options
        self._declared = DeclaredRows.of(schema, options)
        self._kept: StreamConsumer | None = None
        self._ends = False

    # --- In the planner ------------------------------------------------------------------------------------------------

    def has_begun(self) -> bool:
        return self._consumer().has_begun()

    def getDefaultReadLimit(self) -> ReadLimit:
        """Always of one kind, so that only the trigger `once` asks with ReadAllAvailable. The broker enforces the options."""
        return ReadMaxRows(self._options["maxMessagesPerTrigger"] or _NO_LIMIT)

    def prepareForTriggerAvailableNow(self) -> None:
        self._ends = True
        self._consumer().fix_tail()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        credit = Credit(self._options["maxMessagesPerTrigger"], self._options["maxBytesPerTrigger"])
        once = isinstance(limit, ReadAllAvailable)
        return self._consumer(start).advance(start, wait_ms=0 if once else LONG_POLL_MS, credit=credit, once=once)

    def reportLatestOffset(self) -> dict[str, Any]:
        """Spark asks after each `latestOffset`, whose answer had the counts."""
        return {"source": self._options.description, "queues": self._consumer().counts()}

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        return self._consumer(start, end).plan(start, end)

    def commit(self, end: Mapping[str, Any]) -> None:
        self._consumer(end).settle(end)

    def stop(self) -> None:
        """Spark 4.2 does not call this."""
        if self._kept is not None:
            self._kept.close()

    def _consumer(self, *offsets: Mapping[str, Any]) -> StreamConsumer:
        """A checkpoint of several brokers keeps its kind if `url` now names one."""
        several = any(offset.get("kind") == BROKERS for offset in offsets)
        if several and self._kept is not None and not isinstance(self._kept, BrokersConsumer):
            self._kept.close()  # only `fix_tail` was called
            self._kept = None
        if self._kept is None:
            several = several or len(self._options.urls) > 1
            self._kept = BrokersConsumer(self._options, _of_one_broker) if several else _of_one_broker(self._options)
            if self._ends and offsets:
                self._kept.fix_tail()
        return self._kept

    # --- In a task -----------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        columns, fail_on_data_loss = self._declared.columns, self._options["failOnDataLoss"]
        if isinstance(partition, SpoolPartition):
            return self._declared.rows(read_spooled(partition, columns, fail_on_data_loss))
        assert isinstance(partition, LeasePartition)
        access = self._options.access.of(partition.url)
        return self._declared.rows(read_leased(partition, access, columns, fail_on_data_loss))


def _of_one_broker(options: Options) -> BrokerConsumer:
    access = _penstock(options)
    if access is None:
        return ForeignConsumer(options)
    options.check_names()
    return QueuesConsumer(options, access)


def _penstock(options: Options) -> BrokerAccess | None:
    """None for a foreign broker.

    With the option `spool`, a broker that does not answer or refuses counts as foreign: the spool can be read without it.
    """
    spool, url = options["spool"], options["url"]
    try:
        broker = options.access.look()
    except PenstockError as error:
        if spool is None or isinstance(error, (InvalidOption, LessSafe)):
            raise
        return None
    if broker is None or isinstance(broker, Endpoint):
        if spool is not None:
            raise InvalidOption(f"a Penstock stands at {url}, which needs no spool: leave the option spool out")
        return options.access.at(broker)
    if spool is None:
        raise InvalidOption(
            f"{url} is a plain AMQP 1.0 broker ({broker}): a stream from it needs the option spool, an empty folder of the"
            " query's own that driver and executors reach, such as /data/spool/orders or s3a://bucket/spool/orders"
        )
    return None
