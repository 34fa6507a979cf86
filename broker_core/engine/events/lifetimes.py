"""Events of links that the lifetime of a queue or an exchange depends on."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..model.exchange import LifetimeLink
from ..model.state import NEXT_HOLDER, BrokerState
from .event import Event

UNTIL_EMPTY = ("empty", "unusedOrEmpty")  # lifetimes that may end with the last message
UNTIL_UNUSED = ("unused", "unusedOrEmpty")  # with the last link or lease


def with_lifetime(state: BrokerState, queue: str, lifetimes: tuple[str, ...]) -> tuple[str, ...]:
    known = state.queues.get(queue)
    return (queue,) if known is not None and known.rules.lifetime in lifetimes else ()


class EndsMessages:
    """An event that may end the last message of its queue. Returning messages may be replaced by newer values."""

    queue: str

    def may_end(self, state: BrokerState) -> Iterable[str]:
        return with_lifetime(state, self.queue, UNTIL_EMPTY)


@dataclass(frozen=True)
class LinkOpened(Event, kind="link.opened", journaled=False):
    """The fields are as in `commands.OpenLink`."""

    node: str
    link: int
    makes: bool
    owner: str | None

    def apply(self, state: BrokerState, position: int) -> None:
        state.links.setdefault(self.node, {})[self.link] = LifetimeLink(self.makes, self.owner)
        state.next_link = self.link + NEXT_HOLDER


@dataclass(frozen=True)
class LinkGone(Event, kind="link.gone", journaled=False):
    """The end of a link."""

    node: str
    link: int

    def apply(self, state: BrokerState, position: int) -> None:
        links = state.links[self.node]
        del links[self.link]
        if not links:
            del state.links[self.node]

    def may_end(self, state: BrokerState) -> Iterable[str]:
        if state.lifetime_of(self.node) == "link" and not state.links[self.node][self.link].makes:
            return ()  # it ends with the link that made it
        return (self.node,)
