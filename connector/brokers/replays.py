"""The stream reader of `mode=replay` over several brokers: a replay of each, side by side, with offsets by the brokers' ids.

The messages of each broker keep their order and pace. Messages of different brokers are not compared. All brokers are needed.
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
from ..stream.fan_out import rotated
from ..stream.replay import ReplayReader
from ..task.partition import RecordedPartition

_Result = TypeVar("_Result")


@reports_errors
class SeveralReplays(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reader of the archives of a queue at several brokers, as a stream. It connects at its first call."""

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_for(REPLAY)
        self._most: int | None = options["maxMessagesPerTrigger"]
        self._urls = options.urls
        self._readers = [ReplayReader(broker, schema) for broker in options.each()]
        self._ids: list[str] = []

    # --- In the planner ------------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        """Return the offset at which every replay begins."""
        return dict(INITIAL)

    def getDefaultReadLimit(self) -> ReadLimit:
        """Return the limit of a batch."""
        return self._readers[0].getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        """Read the messages that are recorded now, and end."""
        for reader in self._readers:
            reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Return the offset after the next batch, or `start` if there are no more messages now."""
        known = self._parse(start)
        asked = self._asked(known.rotation)
        parts = self._all(lambda i: self._readers[i].latestOffset(self._part(known, i), limit), asked)
        changed = {self._ids[i]: part for i, part in zip(asked, parts, strict=True) if part != self._part(known, i)}
        if changed:
            return BrokersOffset(known.rotation + 1, (), {**known.parts, **changed}).to_json()
        if len(asked) < len(self._readers) and (rest := self._rest(known, asked, limit)):
            return rest
        return dict(start)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks of the rows between two offsets."""
        before, until = self._parse(start), self._parse(end)
        partitions: list[InputPartition] = []
        for i, reader in enumerate(self._readers):
            if self._part(before, i) == self._part(until, i):
                continue
            for part in reader.partitions(self._part(before, i), self._part(until, i)):
                assert isinstance(part, RecordedPartition)
                part.broker_url = self._urls[i]
                partitions.append(part)
        return partitions

    def commit(self, end: Mapping[str, Any]) -> None:
        """Do nothing: a replay acquires no messages."""

    def stop(self) -> None:
        """Close the connections. Spark 4.2 does not call this."""
        for reader in self._readers:
            reader.stop()

    def _asked(self, rotation: int) -> list[int]:
        """Return the readers to ask for a batch: all, or as many as the limit has messages."""
        return rotated(range(len(self._readers)), rotation)[: self._most]

    def _rest(self, known: BrokersOffset, asked: list[int], limit: ReadLimit) -> dict[str, Any] | None:
        """Ask the other readers, for which the limit left no message, one after another."""
        for i in range(len(self._readers)):
            if i not in asked:
                part = self._readers[i].latestOffset(self._part(known, i), limit)
                if part != self._part(known, i):
                    return BrokersOffset(known.rotation + 1, (), {**known.parts, self._ids[i]: part}).to_json()
        return None

    def _part(self, known: BrokersOffset, i: int) -> Mapping[str, Any]:
        return known.of(self._ids[i])

    def _parse(self, data: Mapping[str, Any]) -> BrokersOffset:
        """Parse an offset, also that of a replay of one broker."""
        if not self._ids:
            identities = self._all(lambda i: self._readers[i].identity(), range(len(self._readers)))
            check_identities(dict(zip(self._urls, identities, strict=True)))
            self._ids = [identity.broker for identity in identities]
        known = parse_brokers(data, replay=True)
        removed = [broker for broker in known.parts if broker not in self._ids]
        if removed:
            raise WrongOffset(
                f"the checkpoint also belongs to a replay of broker {removed[0]}, which the option url does not name: put it"
                " back, or start with a new checkpoint"
            )
        return known

    def _all(self, ask: Callable[[int], _Result], which: Sequence[int]) -> list[_Result]:
        with ThreadPoolExecutor(len(which)) as pool:
            return list(pool.map(ask, which))

    # --- In a task -----------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Read one partition's messages, in a task."""
        return self._readers[0].read(partition)
