"""Lifetimes: the end of queues and exchanges by the policies of AMQP 1.0 (3.5.10 to 3.5.13), and by a restart.

| option `lifetime` | AMQP | ends |
|---|---|---|
| link | delete-on-close | with the link that made it |
| unused | delete-on-no-links | without links and leases; an exchange also without bindings |
| empty | delete-on-no-messages | after the link that made it, when all its messages are archived |
| unusedOrEmpty | delete-on-no-links-or-messages | without links and leases, when all its messages are archived |

A restart ends every link.
"""

from __future__ import annotations

from collections.abc import Container, Mapping

from ...errors import InUse, ResourceLimit
from .. import commands as c
from .. import events as e
from ..columns.limits import MAX_LINKS
from ..events.lifetimes import UNTIL_EMPTY
from ..model.exchange import Exchange, LifetimeLink
from ..model.queue import Queue
from ..model.state import BrokerState
from .decision import Decision, decides, need_queue


def departure(state: BrokerState, queue: Queue) -> e.QueueDeleted:
    departs = state.records and (queue.recordings.rows > 0 or queue.recordings.current is not None)
    return e.QueueDeleted(queue.name, departs)


def what_ends(state: BrokerState, name: str) -> e.Event | None:
    links = state.links.get(name, {})
    queue, exchange = state.queues.get(name), state.exchanges.by_name.get(name)
    if queue is not None and _queue_is_over(state, queue, links):
        return departure(state, queue)
    if exchange is not None and _exchange_is_over(exchange, links):
        return e.ExchangeDeleted(name)
    return None


def _queue_is_over(state: BrokerState, queue: Queue, links: Mapping[int, LifetimeLink]) -> bool:
    lifetime, maker = queue.rules.lifetime, maker_of(links)
    if lifetime == "permanent":
        return False
    if lifetime in UNTIL_EMPTY and queue.live:
        return False
    if lifetime in ("link", "empty"):
        return maker is None
    return not (links or queue.consumers.holders or any(lease.queue == queue.name for lease in state.leases.values()))


def _exchange_is_over(exchange: Exchange, links: Mapping[int, LifetimeLink]) -> bool:
    if exchange.lifetime == "link":
        return maker_of(links) is None
    return exchange.lifetime == "unused" and not links and not exchange.bindings


def maker_of(links: Mapping[int, LifetimeLink]) -> LifetimeLink | None:
    """Return the link that the node was made for, while it exists."""
    return next((link for link in links.values() if link.makes), None)


def check_owner(state: BrokerState, node: str, owner: str | None) -> None:
    maker = maker_of(state.links.get(node, {}))
    if maker is not None and maker.owner not in (None, owner):
        kind = "queue" if node in state.queues else "exchange"
        raise InUse(f"{kind} {node!r} belongs to another connection, which alone may receive from it")


def gone_at_start(state: BrokerState, returning: Container[str]) -> list[e.Event]:
    """Return the ends of queues and exchanges that only links kept alive.

    Queues with `returning` messages end later, by `EndNode`: some messages may be settled, and have to be recorded.
    """
    queues = [queue for queue in state.queues.values() if queue.name not in returning and _queue_is_over(state, queue, {})]
    gone = {queue.name for queue in queues}
    events: list[e.Event] = [departure(state, state.queues[name]) for name in sorted(gone)]
    for exchange in state.exchanges.by_name.values():
        bound = {binding.queue for binding in exchange.bindings.values()}
        if exchange.lifetime == "link" or (exchange.lifetime == "unused" and bound <= gone):
            events.append(e.ExchangeDeleted(exchange.name))
    return events


@decides(c.EndNode)
def end_node(state: BrokerState, command: c.EndNode, now: c.Now) -> Decision[bool]:
    event = what_ends(state, command.node)
    return Decision([] if event is None else [(event, None)], event is not None)


@decides(c.OpenLink)
def open_link(state: BrokerState, command: c.OpenLink, now: c.Now) -> Decision[int]:
    if command.node not in state.exchanges.by_name:
        need_queue(state, command.node)
    if command.receives:
        check_owner(state, command.node, command.owner)
    if len(state.links.get(command.node, ())) >= MAX_LINKS:
        raise ResourceLimit(f"{command.node!r} has {MAX_LINKS} links, which is the limit: end some")
    event = e.LinkOpened(command.node, state.next_link, command.makes, command.owner if command.makes else None)
    return Decision([(event, None)], state.next_link)


@decides(c.CloseLink)
def close_link(state: BrokerState, command: c.CloseLink, now: c.Now) -> Decision[None]:
    known = command.link in state.links.get(command.node, ())
    return Decision([(e.LinkGone(command.node, command.link), None)] if known else [], None)
