"""Who is told that there is work: one queue's consumers in the four lists of seed 001, by priority.

*Not interested* is who lacks credit, or whose socket is full: nobody wakes it, and it says itself when that changes (`wants`).
*Interested* is who found nothing and waits for news. *Notified* is who is to look; it stays so while it takes messages, and goes
to the interested ones' tail when it finds nothing. Those who *do not acquire* hear all news: nobody takes anything from another.

    not interested ──wants──▶ notified ──next──▶ looks ──stays──▶ notified
                                                   ▲ ├──waits──▶ interested
                              interested ──next────┘ └──rests──▶ not interested

A notification is not handed from one to the next, where it could get lost. Rather, `next` asks each time: is anything AVAILABLE,
and who waits that has not looked since the last news? What one may not have, for its selector or a message group, another may; so
all who wait are asked in turn, each once per news, the highest priority first, until nothing is AVAILABLE. An arrival of which
the first takes all leaves nothing: so it costs the same with one who waits and with a thousand.

So, when `next` has said None and nobody is notified, who waits has looked since the last news, or nothing is AVAILABLE.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Generic, TypeVar

#: Where a consumer stands. LOOKS: `next` has named it, and its answer is not there yet.
RESTS, INTERESTED, NOTIFIED, LOOKS = range(4)

PRIORITIES = range(-128, 128)  # what lies beyond is as the nearest of these: each in use costs `next` a little


class Consumer:
    """What `Interest` keeps of a consumer. The first two are fixed while it is a member."""

    priority = 0  # one of PRIORITIES; a higher one goes first
    acquires = True
    standing = RESTS
    looked = 0  # the news that it knows
    served = 0  # the turn in which it looked last


C = TypeVar("C", bound=Consumer)


class _Level(Generic[C]):
    """Consumers who go round, first come first: those of one priority, or those who do not acquire."""

    __slots__ = ("interested", "notified", "priority")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.notified: OrderedDict[C, None] = OrderedDict()
        self.interested: OrderedDict[C, None] = OrderedDict()  # in the order in which they looked

    def first_notified(self, turn: int) -> C | None:
        """Who is to look and did not in this turn. Behind who did stands who came since: that is for the next turn."""
        consumer = next(iter(self.notified), None)
        return None if consumer is None or consumer.served == turn else consumer


class Interest(Generic[C]):
    """One queue's. `members` are by the number that the engine has for each."""

    def __init__(self) -> None:
        self.members: dict[int, C] = {}
        self._news = 0  # how often something became AVAILABLE
        self._turn = 0
        self._levels: list[_Level[C]] = []  # the highest priority first
        self._browsers: _Level[C] = _Level(0)
        self._only: int | None = None  # who alone may acquire now; 0: nobody

    # --- what a consumer says

    def join(self, number: int, consumer: C) -> None:
        """A new consumer, which rests."""
        self.members[number] = consumer

    def leave(self, number: int) -> None:
        """It has ended, wherever it stood."""
        consumer = self.members.pop(number, None)
        if consumer is not None:
            self.rests(consumer)

    def wants(self, consumer: C, *, anyway: bool = False) -> None:
        """It may be able to take messages, so it is to look. Who waits for news would find nothing, and looks only `anyway`."""
        if consumer.standing == RESTS or (anyway and consumer.standing == INTERESTED):
            self.stays(consumer)

    # --- what it says after `next` has named it

    def stays(self, consumer: C) -> None:
        """It took something, and would take more."""
        if self._only is not None and consumer.acquires and self.members.get(self._only) is not consumer:
            self.waits(consumer)  # not its turn; should that come, it is news
            return
        self.rests(consumer)
        self._level(consumer).notified[consumer] = None
        consumer.standing = NOTIFIED

    def waits(self, consumer: C) -> None:
        """It found nothing for it, and would take what comes."""
        self.rests(consumer)
        self._level(consumer).interested[consumer] = None
        consumer.standing, consumer.looked = INTERESTED, self._news

    def rests(self, consumer: C) -> None:
        """It can take nothing now, whatever there is."""
        if consumer.standing == INTERESTED:
            del self._level(consumer).interested[consumer]
        elif consumer.standing == NOTIFIED:
            del self._level(consumer).notified[consumer]
        consumer.standing = RESTS

    # --- what the queue says

    def news(self) -> None:
        """Something became AVAILABLE: it arrived, came back, fell due, was committed, or its group was freed."""
        self._news += 1
        if self._browsers.interested:
            for consumer in list(self._browsers.interested):
                self.stays(consumer)

    def only(self, number: int | None) -> None:
        """The single consumer that the queue gives messages to, 0 where that is none of the members; None: to all."""
        if number != self._only:
            self._only = number
            self.news()  # others may have now what they could not have

    # --- who is to look

    @property
    def busy(self) -> bool:
        """Whether somebody is notified."""
        return bool(self._browsers.notified) or any(level.notified for level in self._levels)

    def turn(self) -> None:
        """Everybody may look once more."""
        self._turn += 1

    def next(self, available: bool) -> C | None:
        """Who is to look now; None when nobody has to, or all who have did so in this turn.

        `available`: whether the queue has anything AVAILABLE. The one named answers by `stays`, `waits` or `rests`, or leaves,
        before the next is asked for.
        """
        consumer = self._next_acquiring(available) or self._browsers.first_notified(self._turn)
        if consumer is not None:
            self.rests(consumer)
            consumer.standing, consumer.served = LOOKS, self._turn
        return consumer

    def _next_acquiring(self, available: bool) -> C | None:
        for level in self._levels:
            consumer = level.first_notified(self._turn)
            if consumer is None and available:
                consumer = self._unaware(level)
                if consumer is None and level.notified:
                    return None  # these have had their share of this turn and want more: lower ones wait
            if consumer is not None:
                return consumer
        return None

    def _unaware(self, level: _Level[C]) -> C | None:
        """One that waits, and has not looked since the last news."""
        if self._only is None:
            consumer = next(iter(level.interested), None)  # if this one has looked, so have all behind it
        else:
            consumer = self.members.get(self._only)
            if consumer not in level.interested:
                return None
        return None if consumer is None or consumer.looked == self._news else consumer

    def _level(self, consumer: C) -> _Level[C]:
        if not consumer.acquires:
            return self._browsers
        at = 0
        for level in self._levels:
            if level.priority == consumer.priority:
                return level
            if level.priority < consumer.priority:
                break
            at += 1
        self._levels.insert(at, _Level(consumer.priority))
        return self._levels[at]
