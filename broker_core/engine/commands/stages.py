"""Commands about stages."""

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
    """Messages of a stage."""

    stage: str  # of a write: `stages.attempt_name`
    queue: str
    count: int
    sizes: int | Ints
    payload: Any = None
    attributes: Attributes = NO_ATTRIBUTES


@dataclass(frozen=True)
class Publish(Command[tuple[int, bool]]):
    """The publish of stages by name, or of attempts of a write, once for a key. Reply: the number of messages, and whether it
    was a repetition."""

    stages: list[str]
    key: PublishKey | None = None
    write: str | None = None
    attempts: Sequence[int] = ()
    reader: SparkBatch | None = None  # the micro-batch that is written
    maker: Maker | None = None  # owner of the key
    elsewhere: str | None = None  # of a write to several brokers: for a repetition that finishes it


@dataclass(frozen=True)
class IsPublished(Command[tuple[bool, str | None]]):
    """Reply: whether a publish with this key was done, and its `elsewhere`."""

    key: PublishKey


@dataclass(frozen=True)
class Discard(Command[int]):
    """The end of stages, or of all attempts of an unpublished write, also later ones. Reply: the number of stages."""

    stages: list[str]
    write: str | None = None


@dataclass(frozen=True)
class ListStages(Command[list[dict[str, Any]]]):
    """The writes that wait for a publish, except transactions."""
