"""Events that time brings, and the start of the clock."""

from __future__ import annotations

from dataclasses import dataclass

from ..columns.rowset import RowSet
from .codec import Event, know


@dataclass(frozen=True)
class Expired(Event):
    """Messages AVAILABLE or DELAYED → ARCHIVED: their time has passed."""

    kind = "expired"
    queue: str
    rows: RowSet
    time: int


@dataclass(frozen=True)
class Delayed(Event):
    """Messages AVAILABLE → DELAYED, in the same event in which they came back: they wait for their retry until `until`,
    milliseconds since 1970."""

    kind = "delayed"
    queue: str
    rows: RowSet
    until: int
    time: int


@dataclass(frozen=True)
class CameDue(Event):
    """Messages DELAYED → AVAILABLE, at their sequence numbers: their delay is over."""

    kind = "came.due"
    queue: str
    rows: RowSet
    time: int


@dataclass(frozen=True)
class Locked(Event):
    """Time until which messages acquired just now may be held, in milliseconds of uptime."""

    kind = "locked"
    journaled = False
    queue: str
    rows: RowSet
    until: int


@dataclass(frozen=True)
class TimePassed(Event):
    """Times up to which all that was due is done: delays and expiry in milliseconds since 1970, locks in those of uptime."""

    kind = "time.passed"
    journaled = False
    due: int
    expiry: int
    lock: int


@dataclass(frozen=True)
class ClockStarted(Event):
    """A new life of the broker: leases and stages count its uptime from here."""

    kind = "clock.started"
    journaled = False
    up: int
    nonce: str = ""


know(Expired, Delayed, CameDue)
