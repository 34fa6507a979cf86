"""Addresses of a link's termini.

An address is the name of a queue or of an exchange, or EXCHANGE/KEY with a routing key or a pattern. A capability may choose: JMS
uses `queue` and `topic`. An address in the notation of another broker (`/queues/q`, `queue://q`) is refused with the right one,
unless an exchange has that name.
"""

from __future__ import annotations

from typing import NamedTuple

from ... import notations
from ...amqp import Condition, Source, Target
from ...amqp.performatives import Attach
from ...amqp.types import Described, Value
from ...security.rights import Right
from ..conditions import Refusal
from ..connections.peer import Peer
from ..links import termini
from ..loop.requests import ExchangeRoute
from . import subscriptions
from .dynamic import lifetime_of
from .filters import filters_of

QUEUES, TOPICS = {"queue", "temporary-queue"}, {"topic", "temporary-topic"}
OWNED = {"temporary-queue", "temporary-topic"}  # of dynamic nodes from which only their connection receives


class Node(NamedTuple):
    """The node that an address names. `key`: the routing key of an exchange."""

    name: str
    is_exchange: bool = False
    key: str | None = None


def find(peer: Peer, address: Value, right: Right, capabilities: tuple[str, ...] = (), *, makes: bool = True) -> Node:
    """Return the node of an address. Raises Refusal.

    `makes`: a policy may make it on first use. This takes the broker's lock, so a caller that has the lock passes False.
    """
    if not isinstance(address, str) or not address:
        raise Refusal(Condition.INVALID_FIELD, f"an address is the name of a queue or an exchange, not {address!r:.80}")
    name, separator, key = address.partition("/")
    nodes = peer.context.nodes
    # A subscription has its own copies, so browsing an exchange needs the right to receive.
    needed = Right.RECEIVE if right is Right.BROWSE and nodes.has_exchange(name) else right
    allowed = peer.may(needed, name)
    if allowed and makes:
        peer.context.create_on_use(name, peer.origin)
    if separator and not (allowed and nodes.has_exchange(name)) and (advice := notations.advice(address)) is not None:
        raise Refusal(Condition.NOT_FOUND, advice)
    if not allowed:
        raise peer.forbidden(needed if peer.sees(name) else right, name)
    as_queue, as_topic = QUEUES.intersection(capabilities), TOPICS.intersection(capabilities)
    if separator or (as_topic and not as_queue):
        if nodes.has_exchange(name):
            return Node(name, True, key if separator else None)
        raise _missing("exchange", name, nodes.has_queue(name))
    if nodes.has_queue(name):
        return Node(name)
    if nodes.has_exchange(name) and (as_topic or not as_queue):
        return Node(name, True)
    raise _missing("queue", name, nodes.has_exchange(name))


def _missing(kind: str, name: str, is_other: bool) -> Refusal:
    if is_other:
        other_kind = "a queue" if kind == "exchange" else "an exchange"
        return Refusal(Condition.NOT_FOUND, f"{name!r:.80} is {other_kind}, no {kind}")
    return Refusal(Condition.NOT_FOUND, f"there is no {kind} {name!r:.80}: declare it with `penstock {kind} declare`")


def target_of(peer: Peer, target: object) -> termini.TargetTerminus | None:
    """Return the target of a sender's attach; None for the anonymous terminus."""
    if isinstance(target, Described):
        text = f"a target is amqp:target:list or amqp:coordinator:list, not {target.descriptor!r:.80}"
        raise Refusal(Condition.NOT_IMPLEMENTED, text)
    if not isinstance(target, Target):
        raise Refusal(Condition.INVALID_FIELD, "a sender's attach needs a target")
    if target.dynamic:
        is_topic = bool(TOPICS.intersection(target.capabilities))
        return termini.DynamicTarget(peer, _lifetime(target), is_topic=is_topic, owned=_is_owned(target))
    if target.address is None:
        return None
    node = find(peer, target.address, Right.SEND, target.capabilities)
    if node.is_exchange:
        return termini.ExchangeTarget(peer, node.name, node.key)
    return termini.TargetTerminus(peer, node.name, node.name)


def route_to(peer: Peer, address: str | None) -> str | ExchangeRoute:
    node = find(peer, address, Right.SEND)
    return termini.exchange_route(peer, node.name, node.key) if node.is_exchange else node.name


def source_of(peer: Peer, attach: Attach) -> termini.SourceTerminus:
    source = attach.source
    if source is None:
        return termini.KnownSubscription(peer, attach.name, subscriptions.of_name(peer, attach.name, attach.desired_capabilities))
    if isinstance(source, Described):
        raise Refusal(Condition.NOT_IMPLEMENTED, f"a source is amqp:source:list, not {source.descriptor!r:.80}")
    filters = filters_of(source)
    if source.dynamic:
        if TOPICS.intersection(source.capabilities):
            return termini.DynamicTopicSource(peer, _lifetime(source), filters, owned=_is_owned(source))
        return termini.DynamicSource(peer, _lifetime(source), filters.of_queue(), owned=_is_owned(source))
    browse = source.distribution_mode == "copy"
    node = find(peer, source.address, Right.BROWSE if browse else Right.RECEIVE, source.capabilities)
    if node.is_exchange:
        subscription = subscriptions.of_link(peer, attach.name, source, node.name, node.key, filters)
        return termini.SubscriptionSource(peer, subscription, filters)
    return termini.SourceTerminus(peer, node.name, node.name, filters.of_queue(), browse=browse)


def _is_owned(terminus: Source | Target) -> bool:
    return bool(OWNED.intersection(terminus.capabilities))


def _lifetime(terminus: Source | Target) -> str:
    if terminus.address is not None:
        raise Refusal(Condition.INVALID_FIELD, "a dynamic node gets its address from the broker: leave it out")
    return lifetime_of(terminus.dynamic_node_properties)
