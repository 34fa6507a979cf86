"""The stream reader of `mode=replay` over several brokers: a replay of each, side by side, with offsets by the brokers' ids.

Each broker's messages keep their order and their pace; those of different brokers are not compared. All brokers are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from ...broker_core.errors import WrongOffset
from ..identity import check_identities
from ..offset import INITIAL, BrokersOffset, parse_brokers
from ..options import REPLAY, Options
from ..reporting import reports_errors
from ..stream.replay import ReplayReader
from ..task.partition import RecordedPartition

_Result = TypeVar("_Result")


@reports_errors
class SeveralReplays(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads what is recorded of a queue at several brokers, as a stream. Connects at its first call."""

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_for(REPLAY)
        self._most: int | None = options["maxMessagesPerTrigger"]
        self._urls = options.urls
        self._readers = [ReplayReader(each, schema) for each in options.each()]
        self._ids: list[str] = []

    # --- In the planner ------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which every replay begins."""
        return dict(INITIAL)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch."""
        return self._readers[0].getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read what is recorded now, and end."""
        for reader in self._readers:
            reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset after the next batch, or `start` where there is nothing more, or nothing yet."""
        known = self._parse(start)
        asked = self._in_turn(known.rotation)
        found = dict(
            zip(asked, self._all(lambda i: self._readers[i].latestOffset(self._part(known, i), limit), asked), strict=True)
        )
        changed = {self._ids[i]: part for i, part in found.items() if part != self._part(known, i)}
        if changed:
            return BrokersOffset(known.rotation + 1, (), {**known.parts, **changed}).to_json()
        if len(asked) < len(self._readers) and (rest := self._rest(known, asked, limit)):
            return rest
        return dict(start)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of the rows between two offsets."""
        before, until = self._parse(start), self._parse(end)
        found: list[InputPartition] = []
        for i, reader in enumerate(self._readers):
            if self._part(before, i) == self._part(until, i):
                continue
            for part in reader.partitions(self._part(before, i), self._part(until, i)):
                assert isinstance(part, RecordedPartition)
                part.broker_url = self._urls[i]
                found.append(part)
        return found

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: nothing was taken."""

    def stop(self) -> None:
        """Close the connections. Spark 4.2 does not call this."""
        for reader in self._readers:
            reader.stop()

    def _in_turn(self, turn: int) -> list[int]:
        """Return who is asked for a batch: all, or as many as the limit has messages."""
        count = len(self._readers)
        asked = count if self._most is None else min(count, self._most)
        return [(turn + i) % count for i in range(asked)]

    def _rest(self, known: BrokersOffset, asked: list[int], limit: ReadLimit) -> dict[str, Any] | None:
        """Ask those for which the limit left nothing, one after another."""
        for i in range(len(self._readers)):
            if i not in asked:
                part = self._readers[i].latestOffset(self._part(known, i), limit)
                if part != self._part(known, i):
                    return BrokersOffset(known.rotation + 1, (), {**known.parts, self._ids[i]: part}).to_json()
        return None

    def _part(self, known: BrokersOffset, i: int) -> Mapping[str, Any]:
        return known.of(self._ids[i])

    def _parse(self, data: Mapping[str, Any]) -> BrokersOffset:
        """Parse an offset, that of a replay of one broker, too."""
        if not self._ids:
            found = self._all(lambda i: self._readers[i].identity(), range(len(self._readers)))
            check_identities(dict(zip(self._urls, found, strict=True)))
            self._ids = [identity.broker for identity in found]
        known = parse_brokers(data, replay=True)
        gone = [broker for broker in known.parts if broker not in self._ids]
        if gone:
            raise WrongOffset(f"the checkpoint belongs to a replay of broker {gone[0]} too, which the option url does not name")
        return known

    def _all(self, ask: Callable[[int], _Result], which: Sequence[int]) -> list[_Result]:
        with ThreadPoolExecutor(len(which)) as pool:
            return list(pool.map(ask, which))

    # --- In a task -----------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition's messages, in a task."""
        return self._readers[0].read(partition)
