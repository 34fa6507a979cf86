"""Commands about stages: messages that wait, unseen, until they are published."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ..columns.attributes import NO_ATTRIBUTES, Attributes
from ..columns.series import Ints
from ..model.publish_keys import PublishKey
from ..model.reads import SparkBatch
from .command import Command, Maker
from .queues import Stores


@dataclass(frozen=True)
class StageMessages(Stores[None]):
    """Messages that wait in a stage, unseen, until it is published. The fields are as of `Enqueue`."""

    stage: str  # a name, or `stages.attempt_name`
    queue: str
    count: int
    sizes: int | Ints
    payload: Any = None
    attributes: Attributes = NO_ATTRIBUTES


@dataclass(frozen=True)
class Publish(Command[tuple[int, bool]]):
    """Stages by name, or these attempts of a write. Reply: how many messages, and whether it was done before."""

    stages: list[str]
    key: PublishKey | None = None
    write: str | None = None
    attempts: Sequence[int] = ()
    reader: SparkBatch | None = None  # the batch of Spark's that is written
    maker: Maker | None = None  # whose key it is, and how many that user may have
    elsewhere: str | None = None  # of a write over several brokers: kept with the key, for a repetition that finishes the others


@dataclass(frozen=True)
class IsPublished(Command[tuple[bool, str | None]]):
    """A question: would a publish with this key be a repetition? Reply: with the `elsewhere` of the publish with this number."""

    key: PublishKey


@dataclass(frozen=True)
class Discard(Command[int]):
    """Stages by name, or all attempts of a write, those too that come later. Reply: how many there were."""

    stages: list[str]
    write: str | None = None


@dataclass(frozen=True)
class ListStages(Command[list[dict[str, Any]]]):
    """The descriptions, by write, of the stages that wait for a publish."""
