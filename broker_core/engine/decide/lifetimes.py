"""When a queue or an exchange ends by itself: the lifetime policies of AMQP 1.0 (3.5.10 to 3.5.13), and a restart.

| option `lifetime` | AMQP | ends |
|---|---|---|
| link | delete-on-close | with the link that made it |
| unused | delete-on-no-links | when no link uses it any more, and no lease; an exchange also waits for its last binding |
| empty | delete-on-no-messages | when the link that made it is gone, and all its messages are archived |
| unusedOrEmpty | delete-on-no-links-or-messages | when neither is left |

A restart ends every link: what lives by links alone ends there.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from penstock.broker_core.engine.events import exchanges as xe
from penstock.broker_core.engine.events import moves as me
from penstock.broker_core.engine.events import queues as e
from penstock.broker_core.engine.model.exchange import Exchange, Link
from penstock.broker_core.engine.model.queue import Queue
from penstock.broker_core.engine.model.state import BrokerState
from penstock.broker_core.errors import InUse

_UNTIL_EMPTY = ("empty", "unusedOrEmpty")
_UNTIL_UNUSED = ("unused", "unusedOrEmpty")
_USE_ENDS = (e.Unsubscribed, e.LeaseDeleted)
_MESSAGES_END = (e.Settled, e.Purged, e.Expired, e.BatchEnded, me.Moved, e.Returned)  # returned: replaced as it came back
_CONCERNED = {xe.LinkGone, xe.Unbound, e.QueueDeleted, e.Together, e.HoldersLost, *_USE_ENDS, *_MESSAGES_END}


def may_end(state: BrokerState, event: e.Event) -> Iterable[str]:
    """The names of queues and exchanges that may end after `event`: to be looked at then. Asked before `event` is applied."""
    if type(event) not in _CONCERNED:
        return ()
    if isinstance(event, xe.LinkGone):
        lifetime, made = _lifetime(state, event.node), state.links[event.node][event.link].makes
        return () if lifetime == "link" and not made else (event.node,)  # what nobody's link made ends with nobody's
    if isinstance(event, e.QueueDeleted):
        return tuple(state.exchanges.leading_to(event.queue))
    if isinstance(event, xe.Unbound):
        return (event.exchange,)
    if isinstance(event, e.Together):
        return {name for part in event.parts for name in may_end(state, part)}
    if isinstance(event, e.HoldersLost):
        return tuple(event.rows)
    concerned = _UNTIL_UNUSED if isinstance(event, _USE_ENDS) else _UNTIL_EMPTY
    name = state.leases[event.lease].queue if isinstance(event, (e.LeaseDeleted, e.BatchEnded)) else getattr(event, "queue", "")
    queue = state.queues.get(name)
    return () if queue is None or queue.rules.lifetime not in concerned else (name,)


def _lifetime(state: BrokerState, name: str) -> str:
    queue, exchange = state.queues.get(name), state.exchanges.by_name.get(name)
    return queue.rules.lifetime if queue is not None else exchange.lifetime if exchange is not None else "permanent"


def what_ends(state: BrokerState, name: str) -> e.Event | None:
    """The event that ends a queue or an exchange, if its time has come."""
    links = state.links.get(name, {})
    queue, exchange = state.queues.get(name), state.exchanges.by_name.get(name)
    if queue is not None and _queue_is_over(state, queue, links):
        return e.QueueDeleted(name)
    if exchange is not None and _exchange_is_over(exchange, links):
        return xe.ExchangeDeleted(name)
    return None


def _queue_is_over(state: BrokerState, queue: Queue, links: Mapping[int, Link]) -> bool:
    lifetime, maker = queue.rules.lifetime, maker_of(links)
    if lifetime == "permanent":
        return False
    if lifetime in _UNTIL_EMPTY and queue.live:
        return False
    if lifetime in ("link", "empty"):
        return maker is None
    return not (links or queue.subscriptions or any(lease.queue == queue.name for lease in state.leases.values()))


def _exchange_is_over(exchange: Exchange, links: Mapping[int, Link]) -> bool:
    if exchange.lifetime == "link":
        return maker_of(links) is None
    return exchange.lifetime == "unused" and not links and not exchange.bindings


def maker_of(links: Mapping[int, Link]) -> Link | None:
    """The link that a queue or an exchange was made for, while it is there."""
    return next((link for link in links.values() if link.makes), None)


def check_owner(state: BrokerState, node: str, owner: str | None) -> None:
    """InUse if one connection alone may receive from a queue or an exchange, and it is not `owner`."""
    maker = maker_of(state.links.get(node, {}))
    if maker is not None and maker.owner not in (None, owner):
        kind = "queue" if node in state.queues else "exchange"
        raise InUse(f"{kind} {node!r} belongs to another connection, which alone may receive from it")


def gone_at_start(state: BrokerState) -> list[e.Event]:
    """What a restart ends: what lived by links, of which there are none."""
    queues = [
        queue for queue in state.queues.values() if queue.rules.lifetime != "permanent" and _queue_is_over(state, queue, {})
    ]
    gone = {queue.name for queue in queues}
    events: list[e.Event] = [e.QueueDeleted(name) for name in sorted(gone)]
    for exchange in state.exchanges.by_name.values():
        bound = {binding.queue for binding in exchange.bindings.values()}
        if exchange.lifetime == "link" or (exchange.lifetime == "unused" and bound <= gone):
            events.append(xe.ExchangeDeleted(exchange.name))
    return events
