"""A source for Spark on python-qpid-proton, as the documentation of both suggests to a user without a connector.

A `SimpleDataSourceStreamReader`, which receives with a `BlockingReceiver` and accepts each message. The option `messages` is
their number, so that it ends with the last message.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pyspark.sql.datasource import DataSource, SimpleDataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

PROTON = "benchProton"
#: Messages of one batch, and credit: without credit proton requests each message separately.
BATCH, CREDIT = 10_000, 1_000
TIMEOUT_S = 30


class ProtonSource(DataSource):
    """Options: `url`, `queue`, `messages`."""

    @classmethod
    def name(cls) -> str:
        return PROTON

    def schema(self) -> str:
        return "messageId string, body binary"

    def simpleStreamReader(self, schema: StructType) -> SimpleDataSourceStreamReader:
        return _ProtonReader(self.options["url"], self.options["queue"], int(self.options["messages"]))


class _ProtonReader(SimpleDataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, url: str, queue: str, messages: int) -> None:
        self._url, self._queue, self._messages = url, queue, messages
        self._receiver: Any = None

    def initialOffset(self) -> dict[str, Any]:
        return {"messages": 0}

    def prepareForTriggerAvailableNow(self) -> None:
        pass

    def read(self, start: dict[str, Any]) -> tuple[Iterator[tuple[Any, ...]], dict[str, Any]]:
        if self._receiver is None:
            from proton.utils import BlockingConnection

            self._receiver = BlockingConnection(self._url, timeout=TIMEOUT_S).create_receiver(self._queue, credit=CREDIT)
        rows: list[tuple[Any, ...]] = []
        for _ in range(min(BATCH, self._messages - start["messages"])):
            message = self._receiver.receive(timeout=TIMEOUT_S)
            rows.append((message.id, bytes(message.body)))
            self._receiver.accept()
        if rows and start["messages"] + len(rows) == self._messages:
            self._receiver.connection.close()  # the last outcomes are sent with the next frame
        return iter(rows), {"messages": start["messages"] + len(rows)}

    def readBetweenOffsets(self, start: dict[str, Any], end: dict[str, Any]) -> Iterator[tuple[Any, ...]]:
        raise NotImplementedError("such a source cannot repeat a read")

    def commit(self, end: dict[str, Any]) -> None:
        pass
