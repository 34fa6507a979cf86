"""Commands about the archive's table: what goes to it, in passes (see `model.recordings`)."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.recordings import Backlog, Recording
from .command import Command


@dataclass(frozen=True)
class BeginRecording(Command[Recording | None]):
    """The begin of a queue's next pass, of at most about so many rows and stored bytes. Reply: the pass, or the one that has
    begun and not ended; None where nothing is to be recorded, or the queue is gone."""

    queue_id: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class EndRecording(Command[bool]):
    """The end of a pass: its rows are in the table of this version. Reply: whether it had not ended yet."""

    queue_id: int
    number: int
    version: int


@dataclass(frozen=True)
class ListBacklogs(Command[list[Backlog]]):
    """The queues, deleted ones too, that have something to be recorded."""
