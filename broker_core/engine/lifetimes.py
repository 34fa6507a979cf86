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

from broker_core.engine import commands as c
from broker_core.engine import events as e
from broker_core.engine import exchange_commands as x
from broker_core.engine import exchange_events as xe
from broker_core.engine.decide import Decision, need_queue, on
from broker_core.engine.exchanges import Exchange, Link
from broker_core.engine.queues import Queue
from broker_core.engine.state import BrokerState
from broker_core.errors import InUse, ResourceLimit

MAX_LINKS = 100_000  # to one node
_USE_ENDS = (xe.LinkGone, e.Unsubscribed, e.LeaseDeleted)
_MESSAGES_END = (e.Settled, e.Purged, e.BatchEnded)


def may_end(state: BrokerState, event: e.Event) -> Iterable[str]:
    """The names of queues and exchanges that may end after `event`: to be retired then. Asked before `event` is applied."""
    if isinstance(event, xe.LinkGone):
        return (event.node,)
    if isinstance(event, e.QueueDeleted):
        return tuple(state.exchanges.leading_to(event.queue))
    if isinstance(event, xe.Unbound):
        return (event.exchange,)
    if isinstance(event, e.Together):
        return {name for part in event.parts for name in may_end(state, part)}
    if not isinstance(event, (*_USE_ENDS, *_MESSAGES_END)):
        return ()
    name = event.queue if hasattr(event, "queue") else state.leases[event.lease].queue
    queue = state.queues.get(name)
    return () if queue is None or queue.rules.lifetime == "permanent" else (name,)


def _is_over(state: BrokerState, name: str) -> e.Event | None:
    """What ends it, if its time has come."""
    links = state.links.get(name, {})
    queue, exchange = state.queues.get(name), state.exchanges.by_name.get(name)
    if queue is not None and _queue_is_over(state, queue, links):
        return e.QueueDeleted(name)
    if exchange is not None and _exchange_is_over(exchange, links):
        return xe.ExchangeDeleted(name)
    return None


def _queue_is_over(state: BrokerState, queue: Queue, links: Mapping[int, Link]) -> bool:
    lifetime, maker = queue.rules.lifetime, _maker(links)
    if lifetime == "permanent":
        return False
    if lifetime in ("empty", "unusedOrEmpty") and queue.live:
        return False
    if lifetime in ("link", "empty"):
        return maker is None
    return not (links or queue.subscriptions or any(lease.queue == queue.name for lease in state.leases.values()))


def _exchange_is_over(exchange: Exchange, links: Mapping[int, Link]) -> bool:
    if exchange.lifetime == "link":
        return _maker(links) is None
    return exchange.lifetime == "unused" and not links and not exchange.bindings


def _maker(links: Mapping[int, Link]) -> Link | None:
    return next((link for link in links.values() if link.makes), None)


@on(x.Retire)
def _(state: BrokerState, command: x.Retire, now: c.Now) -> Decision:
    event = _is_over(state, command.node)
    return Decision([] if event is None else [(event, None)], event is not None)


@on(x.OpenLink)
def _(state: BrokerState, command: x.OpenLink, now: c.Now) -> Decision:
    if command.node not in state.exchanges.by_name:
        queue, maker = need_queue(state, command.node), _maker(state.links.get(command.node, {}))
        if command.receives and maker is not None and maker.owner not in (None, command.owner):
            raise InUse(f"queue {queue.name!r} belongs to another connection, which alone may receive from it")
    if len(state.links.get(command.node, ())) >= MAX_LINKS:
        raise ResourceLimit(f"{command.node!r} has {MAX_LINKS} links, which is the limit")
    event = xe.LinkOpened(command.node, state.next_link, command.makes, command.owner if command.makes else None)
    return Decision([(event, None)], state.next_link)


@on(x.CloseLink)
def _(state: BrokerState, command: x.CloseLink, now: c.Now) -> Decision:
    known = command.link in state.links.get(command.node, ())
    return Decision([(xe.LinkGone(command.node, command.link), None)] if known else [])


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
