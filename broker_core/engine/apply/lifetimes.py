"""State changes on which the lifetime of a queue or an exchange depends."""

from __future__ import annotations

from .. import events as e
from ..model.exchange import Link
from ..model.state import NEXT_HOLDER, BrokerState


def link_opened(state: BrokerState, event: e.LinkOpened, position: int) -> None:
    """Add a link to a queue or an exchange."""
    state.links.setdefault(event.node, {})[event.link] = Link(event.makes, event.owner)
    state.next_link = event.link + NEXT_HOLDER


def link_gone(state: BrokerState, event: e.LinkGone, position: int) -> None:
    """Remove a link from its queue or exchange."""
    links = state.links[event.node]
    del links[event.link]
    if not links:
        del state.links[event.node]
