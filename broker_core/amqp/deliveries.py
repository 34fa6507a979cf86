"""Deliveries, and a session's unsettled ones by id."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import itemgetter
from typing import TYPE_CHECKING, NamedTuple

from . import serial
from .performatives import TERMINAL, in_short

if TYPE_CHECKING:
    from .links import Link
    from .performatives import DeliveryState


@dataclass(slots=True, eq=False)
class Delivery:
    """A message from its first transfer until it is settled. `state` is our last state, `remote_state` the peer's, `in_short`."""

    link: Link
    id: int
    tag: bytes
    format: int
    payload: bytes
    settled: bool
    rcv_settle_mode: int
    remote_settled: bool = False
    state: DeliveryState | None = None
    remote_state: DeliveryState | None = None
    resumed: bool = False

    def __repr__(self) -> str:
        return f"Delivery(id={self.id}, tag={self.tag!r}, {len(self.payload)} octets, settled={self.settled})"


class DeliveryBlock(NamedTuple):
    """Complete messages with consecutive delivery ids from `first` on, for `Receiver.in_blocks`."""

    first: int
    payloads: list[bytes]
    settled: bool = False


class Unsettled(dict[int, "Delivery"]):
    """Unsettled deliveries of one direction of a session, in the order of their ids.

    A disposition names up to 2**31 ids in 30 octets, and a peer may repeat it. So a range costs only the number of deliveries
    that it changes, plus a bisection. `_all` and `_open` (without an outcome from the peer) hold ids in order. They are updated
    when a range is not complete; a search drops the ended deliveries that it meets. `_stated` holds ranges that the peer has put
    in a transaction, with their state. In these three ids do not wrap.

    Within a transaction a peer may change outcomes, `CHANGES` times for each delivery and `SPARE` more.
    """

    __slots__ = ("_all", "_changed", "_newest", "_open", "_period", "_stated", "_top")

    CHANGES, SPARE = 16, 100_000  # a client sends an outcome once or twice

    def __init__(self) -> None:
        super().__init__()
        self._changed = 0  # deliveries put in a transaction, less the changes that later deliveries allow
        self._all: list[int] = []
        self._open: list[int] = []
        self._newest: int | None = None  # the last delivery id in these two, if it is unsettled
        self._top = 0  # the same, without wrap
        self._stated: list[tuple[int, int, object]] = []  # first, last; they do not overlap
        self._period = 0

    def take(self, first: int, last: int, newest: int) -> list[Delivery]:
        """Remove and return the deliveries of a range. `newest` is the session's last delivery id."""
        if first == last:
            alone = self.pop(first, None)
            return [] if alone is None else [alone]
        if last - first < len(self):
            try:
                deliveries = list(map(self.__getitem__, range(first, last + 1)))  # usually all are present
            except KeyError:
                deliveries = []
            if deliveries:
                for number in range(first, last + 1):
                    del self[number]
                return deliveries
        numbers = self._cut(self._all, first, last, newest)
        return [delivery for number in numbers if (delivery := self.pop(number, None)) is not None]

    def decide(self, first: int, last: int, newest: int) -> list[Delivery]:
        if first == last:
            alone = self.get(first)
            return [] if alone is None or isinstance(alone.remote_state, TERMINAL) else [alone]
        numbers = self._cut(self._open, first, last, newest)
        deliveries = [delivery for number in numbers if (delivery := self.get(number)) is not None]
        return [delivery for delivery in deliveries if not isinstance(delivery.remote_state, TERMINAL)]

    def place(self, first: int, last: int, newest: int, state: DeliveryState, period: int) -> list[Delivery]:
        """Return the deliveries of a range whose last state in a transaction differs from this one. States of an earlier `period`
        do not count.
        """
        if period != self._period or len(self._stated) > 2 * len(self) + _VAIN:
            self._period = period
            self._stated.clear()
        self._refresh(newest)
        low, high = self._range(first, last)
        deliveries: list[Delivery] = []
        if low <= high:
            comparable = state if in_short(state) is state else object()  # large states are not comparable
            for begin, end in self._state(low, high, comparable):
                deliveries += self._alive(begin, end)
        self._changed += len(deliveries)
        return deliveries

    def links(self, first: int, last: int, newest: int) -> list[Link]:
        self._refresh(newest)
        return list({delivery.link: None for delivery in self._alive(*self._range(first, last))})

    @property
    def exhausted(self) -> bool:
        return self._changed > self.SPARE

    def _state(self, low: int, high: int, state: object) -> list[tuple[int, int]]:
        stated, missing, at = self._stated, list[tuple[int, int]](), low
        start = bisect_left(stated, low, key=_last)
        stop = bisect_right(stated, high, lo=start, key=_first)
        around = list[tuple[int, int, object]]()
        for first, last, known in stated[start:stop]:
            if known == state:
                if first <= low and last >= high:
                    return missing
                if at < first:
                    missing.append((at, first - 1))
                at = max(at, last + 1)
            if first < low:
                around.append((first, low - 1, known))
            if last > high:
                around.append((high + 1, last, known))
        if at <= high:
            missing.append((at, high))
        stated[start:stop] = sorted([*around, (low, high, state)], key=_first)
        return missing

    def _alive(self, low: int, high: int) -> list[Delivery]:
        ids = self._all
        begin = bisect_left(ids, low)
        end = bisect_right(ids, high, begin)
        numbers = ids[begin:end]
        alive = [number for number in numbers if number & serial.MASK in self]
        if len(alive) < len(numbers):
            ids[begin:end] = alive
        return [self[number & serial.MASK] for number in alive]

    def _cut(self, ids: list[int], first: int, last: int, newest: int) -> list[int]:
        self._refresh(newest)
        low, high = self._range(first, last)
        begin = bisect_left(ids, low)
        end = bisect_right(ids, high, begin)
        numbers, ids[begin:end] = ids[begin:end], ()
        return [number & serial.MASK for number in numbers]

    def _range(self, first: int, last: int) -> tuple[int, int]:
        low = self._top + serial.difference(first, self._top)
        return low, min(low + serial.difference(last, first), self._top)

    def _refresh(self, newest: int) -> None:
        before, self._newest = self._newest, newest
        if before == newest:
            return
        if before is None or serial.difference(newest, before) < 0:
            self._all.clear()
            self._open.clear()
            since = list(self)
            self._changed = -self.CHANGES * len(self)
        else:
            since = []
            for number in reversed(self):
                if serial.difference(number, before) <= 0:
                    break
                since.append(number)
            since.reverse()
            self._changed = max(self._changed - self.CHANGES * ((newest - before) & serial.MASK), -self.CHANGES * len(self))
        top = self._top
        for number in since:
            top += (number - top) & serial.MASK
            self._all.append(top)
            self._open.append(top)
        self._top = top + ((newest - top) & serial.MASK)
        for ids in (self._all, self._open):
            if len(ids) > 2 * len(self) + _VAIN:
                ids[:] = [number for number in ids if number & serial.MASK in self]


_first, _last = itemgetter(0), itemgetter(1)
_VAIN = 1000  # ended entries that may remain


class LostDeliveries:
    """Deliveries of ours that ended before their receiver gave them a state: with their link, or aborted.

    A later state is reported only if it is in a transaction. Ids are kept as ranges, in order, without wrap. Beyond `RANGES` the
    two lowest become one.
    """

    __slots__ = ("_ranges", "_top")

    RANGES = 1000  # a few kilobytes per session; links end with neighbouring deliveries

    def __init__(self) -> None:
        self._ranges: list[tuple[int, int]] = []  # first and last
        self._top = 0  # the highest id that was added, without wrap

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def add(self, ids: Iterable[int]) -> None:
        for first, last in serial.ranges(list(ids)):
            if not self._ranges:
                self._top = first
            low, high = self._range(first, last)
            self._top = max(self._top, high)
            start, stop = self._between(low - 1, high + 1)
            if start < stop:
                low, high = min(low, self._ranges[start][0]), max(high, self._ranges[stop - 1][1])
            self._ranges[start:stop] = [(low, high)]
        self._limit()

    def take(self, ranges: Sequence[tuple[int, int]]) -> bool:
        """Forget the lost deliveries in these ranges. Return True if there are any."""
        is_lost = False
        for named in ranges if self._ranges else ():
            low, high = self._range(*named)
            start, stop = self._between(low, high)
            if start == stop:
                continue
            is_lost = True
            first, last = self._ranges[start][0], self._ranges[stop - 1][1]
            around = ((first, low - 1), (high + 1, last))
            self._ranges[start:stop] = [(begin, end) for begin, end in around if begin <= end]
        self._limit()
        return is_lost

    def _range(self, first: int, last: int) -> tuple[int, int]:
        low = self._top + serial.difference(first, self._top)
        return low, low + serial.difference(last, first)

    def _between(self, low: int, high: int) -> tuple[int, int]:
        start = bisect_left(self._ranges, low, key=_last)
        return start, bisect_right(self._ranges, high, lo=start, key=_first)

    def _limit(self) -> None:
        beyond = len(self._ranges) - self.RANGES
        if beyond > 0:
            self._ranges[: beyond + 1] = [(self._ranges[0][0], self._ranges[beyond][1])]
