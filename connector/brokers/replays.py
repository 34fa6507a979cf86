"""The stream reader of `mode=replay` over several brokers: a replay of each, side by side, with offsets by the brokers' ids.

The messages of each broker keep their order and pace; messages of different brokers are not compared. All brokers are needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, TypeVar

import pyarrow as pa
from pyspark.sql.types import StructType

from ...broker_core.errors import WrongOffset
from ..identity import check_identities
from ..offset import BrokersOffset, parse_brokers, parse_replay
from ..options import REPLAY, Options
from ..reporting import reports_errors
from ..spark_versions import InputPartition, ReadLimit
from ..stream.fan_out import rotated
from ..stream.replay import ReplayReader
from ..stream.start_tracking import TrackedReader
from ..task.partition import RecordedPartition

_Result = TypeVar("_Result")


@reports_errors
class SeveralReplays(TrackedReader):
    """Reader that connects at its first call."""

    def __init__(self, options: Options, schema: StructType) -> None:
        options.check_for(REPLAY)
        self._most: int | None = options["maxMessagesPerTrigger"]
        self._urls = options.urls
        self._readers = [ReplayReader(broker, schema) for broker in options.per_broker()]
        self._ids: list[str] = []

    # --- In the planner ------------------------------------------------------------------------------------------------

    def getDefaultReadLimit(self) -> ReadLimit:
        return self._readers[0].getDefaultReadLimit()

    def prepareForTriggerAvailableNow(self) -> None:
        for reader in self._readers:
            reader.prepareForTriggerAvailableNow()

    def latestOffset(self, start: Mapping[str, Any], limit: ReadLimit) -> dict[str, Any]:
        known = self._parse(start)
        order = rotated(range(len(self._readers)), known.rotation)
        most = len(order) if self._most is None else self._most
        # Finally readers for which the limit leaves no message, one after another.
        for asked in (order[:most], *([i] for i in sorted(order[most:]))):
            parts = self._all(lambda i: self._readers[i].latestOffset(self._part(known, i), limit), asked)
            changed = {self._ids[i]: part for i, part in zip(asked, parts, strict=True) if part != self._part(known, i)}
            if changed:
                return BrokersOffset(known.rotation + 1, (), {**known.parts, **changed}).to_json()
        return dict(start)

    def partitions(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        before, until = self._parse(start), self._parse(end)
        partitions: list[InputPartition] = []
        for i, reader in enumerate(self._readers):
            first, last = self._part(before, i), self._part(until, i)
            for part in reader.partitions(first, last) if first != last else ():
                assert isinstance(part, RecordedPartition)
                part.broker_url = self._urls[i]
                partitions.append(part)
        return partitions

    def stop(self) -> None:
        for reader in self._readers:
            reader.stop()

    def _part(self, known: BrokersOffset, i: int) -> Mapping[str, Any]:
        return known.of(self._ids[i])

    def _parse(self, data: Mapping[str, Any]) -> BrokersOffset:
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
        begun = next(filter(None, map(parse_replay, known.parts.values())), None)
        if begun is not None:
            for reader in self._readers:
                reader.times = begun.times
        return known

    def _all(self, ask: Callable[[int], _Result], which: Sequence[int]) -> list[_Result]:
        with ThreadPoolExecutor(len(which)) as pool:
            return list(pool.map(ask, which))

    # --- In a task -----------------------------------------------------------------------------------------------------

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._readers[0].read(partition)
