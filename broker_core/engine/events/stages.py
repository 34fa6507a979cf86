"""Events of stages."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from ..columns.attributes import Attributes
from ..columns.series import Ints
from ..model.batch_outcomes import with_newer
from ..model.lease import BatchState
from ..model.publish_keys import PublishKey
from ..model.reads import series_of
from ..model.stages import attempt_name
from ..model.state import DISCARDED, BrokerState, StagedPart
from ..model.transaction import is_transactional
from .event import Event
from .transitions import Arrival, append, runs_of


@dataclass(frozen=True)
class Staged(Event, kind="staged"):
    """Messages of a stage."""

    stage: str
    queue: str
    count: int
    sizes: int | Ints
    time: int
    attributes: dict[str, Any] | None = None
    payload_rows: Ints | None = None
    exchange: str | None = None  # that routed them; they end with their queue

    def apply(self, state: BrokerState, position: int) -> None:
        stage = state.begin_stage(self.stage, self.time)
        attributes = Attributes.of_journal(self.attributes)
        part = StagedPart(self.queue, position, self.count, self.sizes, attributes, self.payload_rows, self.exchange)
        stage.parts.append(part)
        state.count_staged(part, 1)


@dataclass(frozen=True)
class Published(Event, kind="published"):
    """Stages whose messages join their queues. A write names them by `attempts`, and its other stages are discarded."""

    stages: list[str]
    key: PublishKey | None
    time: int
    write: str | None = None
    attempts: Ints | None = None
    sent: list[list[Any]] | None = None  # lease and number of each batch that was read for this write
    user: str | None = None  # owner of the key
    elsewhere: str | None = None

    @property
    def names(self) -> list[str]:
        if self.write is None or self.attempts is None:
            return self.stages
        return [attempt_name(self.write, attempt) for attempt in self.attempts.tolist()]

    def apply(self, state: BrokerState, position: int) -> None:
        names = self.names
        stages = [state.stages[name] for name in names]
        state.end_stages(names if self.write is None else state.stages_of(self.write))
        for stage in stages:
            for part in stage.parts:
                if part.exchange is not None and part.queue not in state.queues:
                    continue
                arrival = Arrival(part.sizes, runs_of(part.count, part.payload_rows, part.position), self.time, part.attributes)
                append(state, state.queues[part.queue], arrival)
            for staged in stage.outcomes:
                batch = state.leases[staged.lease].batches[staged.batch]
                if batch.state is BatchState.READ:  # a settled one has them: Spark repeated the write
                    batch.outcomes = with_newer(batch.outcomes, staged.outcomes)
        write = self.write if self.write is not None else next(iter(names), None)
        if write is not None and not is_transactional(write):
            state.end_write(write, sum(part.count for stage in stages for part in stage.parts))
        if self.key is not None:
            state.publish_keys.note(self.key, self.time, self.user or "", self.elsewhere)
            for lease, number in self.sent or ():
                state.leases[lease].batches[number].reads.note_write(series_of(self.key.kind, self.key.id), sent=True)

    def wakes(self, state: BrokerState) -> Iterable[str]:
        return {part.queue: None for name in self.names for part in state.stages[name].parts}


@dataclass(frozen=True)
class Discarded(Event, kind="discarded"):
    """Stages that end without a publish."""

    stages: list[str]
    write: str | None = None  # it ends with all its stages

    def apply(self, state: BrokerState, position: int) -> None:
        state.end_stages(self.stages)
        if self.write is not None:
            state.end_stages(state.stages_of(self.write))
            state.end_write(self.write, DISCARDED)


@dataclass(frozen=True)
class ReadDropped(Event, kind="read.dropped"):
    """A batch was read for a write that only repeats an earlier one."""

    lease: str
    batch: int
    series: str  # see `reads.series_of`

    def apply(self, state: BrokerState, position: int) -> None:
        state.leases[self.lease].batches[self.batch].reads.note_write(self.series, sent=False)
