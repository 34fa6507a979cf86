"""Commands about recordings."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.recordings import Backlog, Recording
from .command import Command


@dataclass(frozen=True)
class BeginRecording(Command[Recording | None]):
    """The next recording of a queue, of about this many rows and stored bytes. Reply: the new or the current one; None: there is
    nothing to record."""

    queue_id: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class EndRecording(Command[bool]):
    """The end of a recording: its rows are in this version of the table. Reply: whether it ended now."""

    queue_id: int
    number: int
    version: int


@dataclass(frozen=True)
class ListBacklogs(Command[list[Backlog]]):
    """The queues that have something to record, also deleted ones."""
