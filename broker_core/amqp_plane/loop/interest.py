"""The links of one queue by interest and priority: which link looks for messages next.

- *Not interested*: the link has no credit, or its socket is full. It reports a change itself (`wants`).
- *Interested*: the link found nothing, and waits for news.
- *Notified*: the link is to look, and stays notified while it takes messages. When it finds nothing, it goes to the tail of the
  interested links.
- *Awaiting*: the link has looked, and needs an evaluation of its selector. It keeps its place.

Browsers receive all news, since they take no messages from others.

    not interested ──wants──▶ notified ──next──▶ looks ──stays──▶ notified
                                                   ▲ ├──waits──▶ interested
                              interested ──next────┘ ├──rests──▶ not interested
                                notified ◀──resumes──┴──awaits─▶ awaiting

An awaiting link has precedence over links of a lower priority. If it waited for news before, it also precedes later links of its
own priority, for at most `ROUNDS` evaluations. A link behind it may take only messages that it has passed (`ahead_of`). If it
finds only other messages, it is *held back*, and looks again when the awaiting link continues.

Links do not pass notifications on, which could get lost. Instead, each news asks all waiting links, the highest priority first,
until no message is available: a selector or a message group may exclude one link and not another. If the first link takes all of
an arrival, a thousand waiting links cost no more than one.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Generic, TypeVar

#: The states of a link. LOOKS: `next` has named it, and it has not answered yet.
RESTS, INTERESTED, NOTIFIED, LOOKS, AWAITS = range(5)

UNAWARE = -1  # the value of `looked` of a link that looks without news
ROUNDS = 2  # the first evaluation may have begun before the news

PRIORITIES = range(-128, 128)  # other values count as the nearest of these; each value in use costs `next` time


class Candidate:
    """A link, as `Interest` orders it. `priority` and `acquires` do not change while it is a member."""

    priority = 0  # one of PRIORITIES; higher values go first
    acquires = True
    standing = RESTS
    looked = 0  # the last news that it has seen
    served = 0  # the round in which it looked last
    number = 0  # its number in the engine
    ticket = 0  # its place in the order in which `next` named the links; 0: it has no place
    rounds = 0  # how often it has awaited an evaluation in its place
    caught_up = False  # before, it had looked at everything, and waited


C = TypeVar("C", bound=Candidate)


def _goes_before(awaiting: Candidate, follower: Candidate) -> bool:
    if awaiting.priority != follower.priority:
        return awaiting.priority > follower.priority
    return awaiting.caught_up and awaiting.rounds <= ROUNDS and awaiting.ticket < follower.ticket


class _Level(Generic[C]):
    """Links of one priority, or browsers, first come first served."""

    __slots__ = ("interested", "notified", "priority")

    def __init__(self, priority: int) -> None:
        self.priority = priority
        self.notified: OrderedDict[C, None] = OrderedDict()
        self.interested: OrderedDict[C, None] = OrderedDict()  # in the order in which they looked

    def first_notified(self, current: int) -> C | None:
        """Return the next link that has not looked in this round. Links behind it came later."""
        link = next(iter(self.notified), None)
        return None if link is None or link.served == current else link


class Interest(Generic[C]):
    """Interest of one queue's consumers and browsers."""

    def __init__(self) -> None:
        self.members: dict[int, C] = {}  # by their number in the engine
        self._news = 0  # how often messages became available
        self._round = 0
        self._levels: list[_Level[C]] = []  # the highest priority first
        self._browsers: _Level[C] = _Level(0)
        self._only: int | None = None  # the only link that may acquire now; 0: no link may
        self._tickets = 0
        self._awaiting: dict[C, None] = {}
        self._held_back: dict[C, None] = {}

    # --- reports of a link

    def join(self, number: int, link: C) -> None:
        self.members[number] = link
        link.number = number

    def leave(self, number: int) -> None:
        link = self.members.pop(number, None)
        if link is not None:
            self.rests(link)

    def wants(self, link: C, *, anyway: bool = False) -> None:
        if link.standing == RESTS or (anyway and link.standing == INTERESTED):
            self.stays(link)

    def resumes(self, link: C) -> None:
        """Let an awaiting link continue in its place."""
        if link.standing == AWAITS:
            link.standing = NOTIFIED
            notified = self._level(link).notified
            notified[link] = None
            notified.move_to_end(link, last=False)

    # --- its answer to `next`

    def stays(self, link: C) -> None:
        """Keep a link notified: it took messages, and could take more."""
        if self._only is not None and link.acquires and self.members.get(self._only) is not link:
            self.waits(link)  # it may not acquire now; if it may later, that is news
            return
        link.caught_up = link.caught_up and link.standing != LOOKS
        self._take_out(link)
        self._level(link).notified[link] = None
        link.standing = NOTIFIED
        self._end_turn(link)

    def waits(self, link: C) -> None:
        """Let a link wait for news: it found nothing, and could take messages."""
        self._take_out(link)
        self._level(link).interested[link] = None
        link.standing, link.looked, link.caught_up = INTERESTED, self._news, True
        self._end_turn(link)

    def rests(self, link: C) -> None:
        """Let a link rest: it can take nothing now."""
        self._take_out(link)
        link.caught_up = False
        self._end_turn(link)

    def awaits(self, link: C) -> None:
        if not link.acquires:
            self.rests(link)
            return
        link.standing, link.rounds = AWAITS, link.rounds + 1
        if link in self._awaiting:  # it has passed more messages
            self._let_on()
        self._awaiting[link] = None

    def stands_back(self, link: C) -> None:
        """Hold a link back: it found only messages that links ahead of it have not passed."""
        ticket = link.ticket
        self.waits(link)
        link.ticket = ticket
        self._held_back[link] = None

    def misses(self, link: C) -> None:
        """Note that no message is available. A link that has awaited an evaluation keeps its place."""
        ticket, awaited = link.ticket, link in self._awaiting
        self.waits(link)
        if awaited:
            link.ticket = ticket
            self._move_up(link)

    def ahead_of(self, link: C) -> tuple[int, ...]:
        if not self._awaiting or not link.acquires:
            return ()
        return tuple(ahead.number for ahead in self._awaiting if _goes_before(ahead, link))

    @property
    def is_awaiting(self) -> bool:
        return bool(self._awaiting)

    def waiting(self) -> Iterator[list[C]]:
        """Yield the consumers that wait for news and may acquire, by priority, in the order of `next`."""
        only = None if self._only is None else self.members.get(self._only)
        for level in self._levels:
            yield [link for link in level.interested if self._only is None or link is only]

    def _take_out(self, link: C) -> None:
        if link.standing == INTERESTED:
            del self._level(link).interested[link]
            self._held_back.pop(link, None)
        elif link.standing == NOTIFIED:
            del self._level(link).notified[link]
        link.standing = RESTS

    def _end_turn(self, link: C) -> None:
        link.ticket = link.rounds = 0
        if link in self._awaiting:
            del self._awaiting[link]
            self._let_on()

    def _let_on(self) -> None:
        """Let the links that were held back look again, before later ones."""
        held, self._held_back = self._held_back, {}
        for link in reversed(held):
            self._move_up(link)

    def _move_up(self, link: C) -> None:
        link.looked = UNAWARE
        self._level(link).interested.move_to_end(link, last=False)

    # --- reports of the queue

    def news(self) -> None:
        """Note that messages became available, also because their group was freed."""
        self._news += 1
        for link in tuple(self._browsers.interested):
            self.stays(link)

    def only(self, number: int | None) -> None:
        """Set the only link to which the queue gives messages: 0 if it is not a member, None for all links."""
        if number != self._only:
            self._only = number
            self.news()  # other links may now take messages that they could not take before

    # --- the next link

    @property
    def busy(self) -> bool:
        return bool(self._browsers.notified) or any(level.notified for level in self._levels)

    def begin_round(self) -> None:
        self._round += 1

    def next(self, available: bool) -> C | None:
        """Return the link that is to look now; None if no link has to, or all have looked in this round.

        The link answers by `stays`, `waits`, `misses`, `rests`, `awaits` or `stands_back`, or leaves, before the next call.
        """
        link = self._next_acquiring(available) or self._browsers.first_notified(self._round)
        if link is not None:
            self._take_out(link)
            link.standing, link.served = LOOKS, self._round
            if not link.ticket:
                self._tickets += 1
                link.ticket = self._tickets
        return link

    def _next_acquiring(self, available: bool) -> C | None:
        for level in self._levels:
            link = level.first_notified(self._round)
            if link is None and available:
                link = self._unaware(level)
                if link is None and level.notified:
                    return None  # they have had their share of this round and want more: lower ones wait
            if link is not None:
                return link
        return None

    def _unaware(self, level: _Level[C]) -> C | None:
        """Return a link that waits, and has not looked since the last news."""
        if self._only is None:
            link = next(iter(level.interested), None)  # if this one has looked, so have all behind it
        else:
            link = self.members.get(self._only)
            if link not in level.interested:
                return None
        return None if link is None or link.looked == self._news else link

    def _level(self, link: C) -> _Level[C]:
        if not link.acquires:
            return self._browsers
        at = 0
        for level in self._levels:
            if level.priority == link.priority:
                return level
            if level.priority < link.priority:
                break
            at += 1
        self._levels.insert(at, _Level(link.priority))
        return self._levels[at]
