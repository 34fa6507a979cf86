"""Commands about recordings."""

from __future__ import annotations

from dataclasses import dataclass

from ..model.recordings import Backlog, Recording
from .command import Command


@dataclass(frozen=True)
class BeginRecording(Command[Recording | None]):
    """The next recording, of about so many rows and stored bytes. Reply: the new or current one; None: nothing is to record."""

    queue_id: int
    rows: int
    bytes: int


@dataclass(frozen=True)
class EndRecording(Command[bool]):
    """The rows are in this version of the table. Reply: whether the recording ended now."""

    queue_id: int
    number: int
    version: int


@dataclass(frozen=True)
class ListBacklogs(Command[list[Backlog]]):
    """List the backlogs of queues with something to record, also deleted ones."""
