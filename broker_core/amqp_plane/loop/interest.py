"""Consumers of one queue by interest and priority: who of them is told that there is work.

*Not interested* is who lacks credit, or whose socket is full: nobody wakes it, and it says itself when that changes (`wants`).
*Interested* is who found nothing and waits for news. *Notified* is who is to look; it stays so while it takes messages, and goes
to the interested ones' tail when it finds nothing. *Awaiting* is who looked, and whose selector is not evaluated yet for what it
came to: it keeps its turn. Those who *do not acquire* hear all news: nobody takes anything from another.

    not interested ──wants──▶ notified ──next──▶ looks ──stays──▶ notified
                                                   ▲ ├──waits──▶ interested
                              interested ──next────┘ ├──rests──▶ not interested
                                notified ◀──resumes──┴──awaits─▶ awaiting

Who comes after an awaiting one may have only what that one has passed (`ahead_of`): who has a lower priority, or, where the
awaiting one had waited for news, comes later in turn among its equals. Who finds nothing but what it has to leave to others is
*held back*, and looks again when one of those goes on. Equals are held up for `ROUNDS` evaluations: over much that waits there is
enough for all, and a cold selector takes long.

A notification is not handed from one to the next, where it could get lost. Rather, `next` asks each time: is anything AVAILABLE,
and who waits that has not looked since the last news? What one may not have, for its selector or a message group, another may; so
all who wait are asked in turn, each once per news, the highest priority first, until nothing is AVAILABLE. An arrival of which
the first takes all leaves nothing: so it costs the same with one who waits and with a thousand.

So, when `next` has said None and nobody is notified, who waits has looked since the last news, or nothing is AVAILABLE, or it
is held back by one who awaits.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

#: Where a consumer stands. LOOKS: `next` has named it, and its answer is not there yet.
RESTS, INTERESTED, NOTIFIED, LOOKS, AWAITS = range(5)

UNAWARE = -1  # what a consumer knows of the news that is to look whatever they are
ROUNDS = 2  # the first may be one that began before the news came

PRIORITIES = range(-128, 128)  # what lies beyond is as the nearest of these: each in use costs `next` a little


class Candidate:
    """A consumer, as `Interest` keeps it. The first two are fixed while it is a member."""

    priority = 0  # one of PRIORITIES; a higher one goes first
    acquires = True
    standing = RESTS
    looked = 0  # the news that it knows
    served = 0  # the pass in which it looked last
    number = 0  # what the engine has for it
    ticket = 0  # since when it has its turn, in the order in which `next` named them; 0: it has none
    rounds = 0  # how often it has awaited an evaluation in its turn
    caught_up = False  # before its turn it had looked at everything, and waited


C = TypeVar("C", bound=Candidate)


def _goes_before(awaiting: Candidate, other: Candidate) -> bool:
    if awaiting.priority != other.priority:
        return awaiting.priority > other.priority
    return awaiting.caught_up and awaiting.rounds <= ROUNDS and awaiting.ticket < other.ticket


class _Level(Generic[C]):
    """Consumers who go round, first come first: those of one priority, or those who do not acquire."""

    __slots__ = ("interested", "notified", "priority")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.notified: OrderedDict[C, None] = OrderedDict()
        self.interested: OrderedDict[C, None] = OrderedDict()  # in the order in which they looked

    def first_notified(self, current: int) -> C | None:
        """Find the next that is to look and did not in this pass. Those behind one that did came since: they are for the
        next one."""
        consumer = next(iter(self.notified), None)
        return None if consumer is None or consumer.served == current else consumer


class Interest(Generic[C]):
    """Interest of one queue's consumers and browsers. `members` are by the number that the engine has for each."""

    def __init__(self) -> None:
        self.members: dict[int, C] = {}
        self._news = 0  # how often something became AVAILABLE
        self._pass = 0
        self._levels: list[_Level[C]] = []  # the highest priority first
        self._browsers: _Level[C] = _Level(0)
        self._only: int | None = None  # who alone may acquire now; 0: nobody
        self._tickets = 0
        self._awaiting: dict[C, None] = {}
        self._held_back: dict[C, None] = {}

    # --- what a consumer says

    def join(self, number: int, consumer: C) -> None:
        """A new consumer, which rests."""
        self.members[number] = consumer
        consumer.number = number

    def leave(self, number: int) -> None:
        """Take out a consumer that has ended, wherever it stood."""
        consumer = self.members.pop(number, None)
        if consumer is not None:
            self.rests(consumer)

    def wants(self, consumer: C, *, anyway: bool = False) -> None:
        """Have it look: it may be able to take messages. One that waits for news would find nothing, and looks only `anyway`."""
        if consumer.standing == RESTS or (anyway and consumer.standing == INTERESTED):
            self.stays(consumer)

    def resumes(self, consumer: C) -> None:
        """Let an awaiting one go on with its turn: what it wanted to know is known."""
        if consumer.standing == AWAITS:
            consumer.standing = NOTIFIED
            notified = self._level(consumer).notified
            notified[consumer] = None
            notified.move_to_end(consumer, last=False)

    # --- what it says after `next` has named it

    def stays(self, consumer: C) -> None:
        """Keep it notified: it took something, and would take more."""
        if self._only is not None and consumer.acquires and self.members.get(self._only) is not consumer:
            self.waits(consumer)  # not its turn; should that come, it is news
            return
        consumer.caught_up = consumer.caught_up and consumer.standing != LOOKS
        self._take_out(consumer)
        self._level(consumer).notified[consumer] = None
        consumer.standing = NOTIFIED
        self._end_turn(consumer)

    def waits(self, consumer: C) -> None:
        """Let it wait for news: it found nothing for it, and would take what comes."""
        self._take_out(consumer)
        self._level(consumer).interested[consumer] = None
        consumer.standing, consumer.looked, consumer.caught_up = INTERESTED, self._news, True
        self._end_turn(consumer)

    def rests(self, consumer: C) -> None:
        """Let it rest: it can take nothing now, whatever there is."""
        self._take_out(consumer)
        consumer.caught_up = False
        self._end_turn(consumer)

    def awaits(self, consumer: C) -> None:
        """Let it await an evaluation: `resumes` says when that is there."""
        if not consumer.acquires:
            self.rests(consumer)
            return
        consumer.standing, consumer.rounds = AWAITS, consumer.rounds + 1
        if consumer in self._awaiting:  # it has passed some more
            self._let_on()
        self._awaiting[consumer] = None

    def stands_back(self, consumer: C) -> None:
        """Hold it back: it found only what it has to leave to those ahead of it."""
        ticket = consumer.ticket
        self.waits(consumer)
        consumer.ticket = ticket
        self._held_back[consumer] = None

    def misses(self, consumer: C) -> None:
        """Hear that nothing is AVAILABLE. If it has awaited an evaluation meanwhile, it keeps its turn for what comes next."""
        ticket, awaited = consumer.ticket, consumer in self._awaiting
        self.waits(consumer)
        if awaited:
            consumer.ticket = ticket
            self._move_up(consumer)

    def ahead_of(self, consumer: C) -> tuple[int, ...]:
        """The numbers of those who await and go before this one: what they have not passed is theirs first."""
        if not self._awaiting or not consumer.acquires:
            return ()
        return tuple(each.number for each in self._awaiting if _goes_before(each, consumer))

    @property
    def is_awaiting(self) -> bool:
        """Say whether any consumer awaits an evaluation."""
        return bool(self._awaiting)

    def waiting(self) -> Iterator[list[C]]:
        """Yield the acquiring consumers that wait for news and may take it, by priority, the highest first, in the order in which
        `next` would name them."""
        only = None if self._only is None else self.members.get(self._only)
        for level in self._levels:
            yield [each for each in level.interested if self._only is None or each is only]

    def _take_out(self, consumer: C) -> None:
        """Of the list where it stands."""
        if consumer.standing == INTERESTED:
            del self._level(consumer).interested[consumer]
            self._held_back.pop(consumer, None)
        elif consumer.standing == NOTIFIED:
            del self._level(consumer).notified[consumer]
        consumer.standing = RESTS

    def _end_turn(self, consumer: C) -> None:
        consumer.ticket = consumer.rounds = 0
        if consumer in self._awaiting:
            del self._awaiting[consumer]
            self._let_on()

    def _let_on(self) -> None:
        """Let those look again who were held back, if anything is AVAILABLE, and before those who came after them."""
        held, self._held_back = self._held_back, {}
        for consumer in reversed(held):
            self._move_up(consumer)

    def _move_up(self, consumer: C) -> None:
        """An interested one is asked first among its equals, whatever it has looked at."""
        consumer.looked = UNAWARE
        self._level(consumer).interested.move_to_end(consumer, last=False)

    # --- what the queue says

    def news(self) -> None:
        """Hear that something became AVAILABLE: it arrived, came back, fell due, was committed, or its group was freed."""
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
        """Say whether somebody is notified."""
        return bool(self._browsers.notified) or any(level.notified for level in self._levels)

    def begin_pass(self) -> None:
        """Let everybody look once more."""
        self._pass += 1

    def next(self, available: bool) -> C | None:
        """Name the one that is to look now; None when nobody has to, or all that have did so in this pass.

        `available`: whether the queue has anything AVAILABLE. The one named answers by `stays`, `waits`, `misses`, `rests`,
        `awaits` or `stands_back`, or leaves, before the next is asked for.
        """
        consumer = self._next_acquiring(available) or self._browsers.first_notified(self._pass)
        if consumer is not None:
            self._take_out(consumer)
            consumer.standing, consumer.served = LOOKS, self._pass
            if not consumer.ticket:
                self._tickets += 1
                consumer.ticket = self._tickets
        return consumer

    def _next_acquiring(self, available: bool) -> C | None:
        for level in self._levels:
            consumer = level.first_notified(self._pass)
            if consumer is None and available:
                consumer = self._unaware(level)
                if consumer is None and level.notified:
                    return None  # these have had their share of this pass and want more: lower ones wait
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
