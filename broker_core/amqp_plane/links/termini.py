"""Termini: the sources and targets that an attach opens, and that end with their link.

They are read when the attach arrives (`addresses`), opened in its commit, and closed in the commit of the link's end, after the
link has given back its messages. Their answers contain the granted properties.
"""

from __future__ import annotations

from dataclasses import replace

from ...amqp import Condition, Source, Target
from ...amqp.performatives import Error
from ...engine import commands as c
from ...security.users import ANONYMOUS
from ...selectors import Selector
from ...service.turn import Turn
from ..conditions import Refusal
from ..connections.peer import Peer
from ..loop.requests import ExchangeRoute, Immediate
from ..nodes import dynamic, subscriptions
from ..nodes.filters import Filters
from ..nodes.subscriptions import LinkSubscription
from .endpoint import NEVER, Expiry, Terminus
from .options import EXCLUSIVE, IMMEDIATE, LinkOptions

OUTCOMES = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")


class SourceTerminus(Terminus):
    """Source: the queue of a link's messages. `filters`: of the link itself; `browse`: it only shows messages."""

    receives = True

    def __init__(self, peer: Peer, queue: str, named: str | None, filters: Filters, *, browse: bool = False) -> None:
        super().__init__(peer, queue, named)
        self.filters = filters
        self.browse = browse
        self.options = LinkOptions()

    def granted(self, asked: object) -> Expiry:
        """Grant an expiry; a browser's terminus ends at its detach."""
        return Expiry("link-detach") if self.browse else super().granted(asked)  # it has nothing to come back to

    @property
    def asked_selector(self) -> Selector | None:
        """The selector that the attach asks for, of the link itself or of its subscription."""
        return self.filters.selector

    def subscribe(self) -> c.Subscribe:
        """Return the command that makes the link a consumer of the queue."""
        selector = self.filters.selector
        text = None if selector is None else selector.text
        user = None if self.peer.user == ANONYMOUS else self.peer.user
        return c.Subscribe(self.queue, self.options.priority, self.options.exclusive, text, user)

    def is_same(self, asked: Terminus) -> bool:
        """Return True if another attach asks for this queue, with the same filters and options."""
        return super().is_same(asked) and self.is_alike(asked)

    def is_alike(self, asked: Terminus) -> bool:
        """Compare all but the node."""
        if not isinstance(asked, SourceTerminus) or (self.browse, self.options) != (asked.browse, asked.options):
            return False
        return self.filters.answered == asked.filters.answered

    def answer(self, asked: Source) -> Source:
        """Return the granted source, for our attach."""
        return Source(
            address=asked.address,
            durable=0,
            expiry_policy=self.expiry.policy,
            timeout=self.expiry.timeout,
            distribution_mode="copy" if self.browse else "move",
            filter=self.filters.answered,
            default_outcome=asked.default_outcome,
            outcomes=OUTCOMES,
            capabilities=_those(asked.capabilities, "queue", "temporary-queue", *[EXCLUSIVE] * self.options.exclusive),
        )


class DynamicSource(SourceTerminus):
    """Source: a queue that is made for the link."""

    makes = lasts = True

    def __init__(self, peer: Peer, lifetime: str, filters: Filters, *, owned: bool) -> None:
        super().__init__(peer, "", None, filters)
        self._lifetime = lifetime
        self.owned = owned

    def open(self, turn: Turn) -> None:
        """Make the queue. Raises Refusal if the user may not, PenstockError."""
        self.named = self.queue = dynamic.create(turn, self.peer, self._lifetime, is_topic=False)
        super().open(turn)

    def is_same(self, asked: Terminus) -> bool:
        """Return True if another attach asks for such a node again, or for this one by its name."""
        again = type(asked) is DynamicSource and (asked._lifetime, asked.owned) == (self._lifetime, self.owned)
        return (again or (type(asked) is SourceTerminus and asked.named == self.named)) and self.is_alike(asked)

    def answer(self, asked: Source) -> Source:
        """Return the source of our attach, with the queue's name and lifetime."""
        source = super().answer(asked)
        source.address, source.dynamic, source.dynamic_node_properties = self.queue, True, dynamic.described(self._lifetime)
        return source


class DynamicTopicSource(SourceTerminus):
    """Source: a temporary topic that is made for the link, which receives by a subscription of its own."""

    lasts = True

    def __init__(self, peer: Peer, lifetime: str, filters: Filters, *, owned: bool) -> None:
        super().__init__(peer, "", None, Filters())
        self._lifetime, self._asked = lifetime, filters
        self.owned = owned

    @property
    def asked_selector(self) -> Selector | None:
        """The subscription's selector."""
        return self._asked.selector

    def open(self, turn: Turn) -> None:
        """Make the topic, and a subscription to it. Raises Refusal if the user may not, PenstockError."""
        self.named = dynamic.create(turn, self.peer, self._lifetime, is_topic=True)
        self._enter(turn, self.named, makes=True)
        subscription = subscriptions.of_topic(self.peer, self.named, self._asked)
        subscription.open(turn, self.peer)
        self.queue = subscription.queue
        self._enter(turn, self.queue, makes=True)

    def is_same(self, asked: Terminus) -> bool:
        """Return True if another attach asks for such a topic again, or for this one by its name, with the same filters."""
        if type(asked) is DynamicTopicSource:
            again = (asked._lifetime, asked.owned) == (self._lifetime, self.owned)
            return again and asked._asked.answered == self._asked.answered and self.is_alike(asked)
        return isinstance(asked, SubscriptionSource) and asked.is_plain(self.named, self._asked)

    def answer(self, asked: Source) -> Source:
        """Return the source of our attach, with the topic's name and lifetime, and the subscription's filters."""
        source = super().answer(asked)
        source.address, source.dynamic, source.dynamic_node_properties = self.named, True, dynamic.described(self._lifetime)
        source.filter, source.distribution_mode = self._asked.answered, "copy"
        source.capabilities = _those(asked.capabilities, "topic", "temporary-topic")
        return source


class SubscriptionSource(SourceTerminus):
    """Source: an exchange, through a queue of the subscription. The binding holds its filters."""

    def __init__(self, peer: Peer, subscription: LinkSubscription, filters: Filters) -> None:
        super().__init__(peer, subscription.queue, subscription.exchange, Filters())
        self._subscription, self._asked = subscription, filters
        self.makes = self.lasts = not (subscription.durable or subscription.shared)

    @property
    def asked_selector(self) -> Selector | None:
        """The subscription's selector."""
        return self._asked.selector

    def granted(self, asked: object) -> Expiry:
        """Grant an expiry. A subscription of one link is kept for that link, on any connection.

        Unsettled messages of a durable subscription go back with its session, since other links may wait for them. Its queue
        keeps the subscription itself.
        """
        if self._subscription.durable:
            return Expiry()
        return (
            Expiry.granted(asked, self.peer.context.settings.amqp_max_expiry_timeout_s) if isinstance(asked, Source) else Expiry()
        )

    def is_same(self, asked: Terminus) -> bool:
        """Return True if another attach asks for the same subscription, with the same filters and options."""
        if not isinstance(asked, SubscriptionSource) or not self.is_alike(asked):
            return False
        if self._asked.answered != asked._asked.answered:
            return False
        mine, theirs = self._subscription, asked._subscription
        if self.makes:  # then each attach has its own name
            mine = replace(mine, queue=theirs.queue)
        return mine == theirs

    def is_plain(self, exchange: str | None, filters: Filters) -> bool:
        """Return True if it makes a subscription to this exchange, without a key and with these filters."""
        wanted = self._subscription
        return self.makes and (wanted.exchange, wanted.key) == (exchange, None) and self._asked.answered == filters.answered

    def open(self, turn: Turn) -> None:
        """Find or make the subscription. Raises Refusal if it is in use with other filters or options, PenstockError."""
        self._enter(turn, self._subscription.exchange)
        self._subscription.open(turn, self.peer)
        super().open(turn)

    def close(self, turn: Turn, *, closed: bool) -> Error | None:
        """Close the source of an ended link; `closed` also ends a durable subscription. Returns an error if other links use
        it.
        """
        left = super().close(turn, closed=closed)
        if closed and self._subscription.durable and not subscriptions.end(turn, self.queue):
            return subscriptions.in_use(self.queue)
        return left

    def answer(self, asked: Source) -> Source:
        """Return the granted subscription as a source, for our attach."""
        source = super().answer(asked)
        source.filter = self._asked.answered
        source.distribution_mode = "copy"  # each subscription has its own copy
        source.capabilities = _those(asked.capabilities, "topic", "temporary-topic", subscriptions.SHARED, subscriptions.GLOBAL)
        if self._subscription.durable:
            source.durable, source.expiry_policy, source.timeout = 1, NEVER, 0
        return source


class KnownSubscription(SourceTerminus):
    """Source of an attach without a source: the durable subscription of the link's name, to be resumed or ended."""

    def __init__(self, peer: Peer, name: str, queue: str) -> None:
        super().__init__(peer, queue, None, Filters())
        self._name = name
        self._source = Source()
        self._opened = False

    def is_same(self, asked: Terminus) -> bool:
        """Return False: its attach has no source to compare."""
        return False

    def open(self, turn: Turn) -> None:
        """Find the subscription. Raises Refusal if it does not exist, or if the user has no right to receive from it;
        PenstockError.
        """
        source = subscriptions.described(turn, self.queue)
        if source is None:
            raise Refusal(Condition.NOT_FOUND, f"this container has no durable subscription {self._name!r:.80}")
        subscriptions.check_rights(turn, self.peer, self.queue)
        self.named = str(source.address).partition("/")[0]
        self._source, self._opened = source, True
        super().open(turn)

    def close(self, turn: Turn, *, closed: bool) -> Error | None:
        """Close the source of a link that has ended; `closed` ends the subscription. Returns an error if other links use it."""
        if closed and self._opened and not subscriptions.end(turn, self.queue):
            return subscriptions.in_use(self._name)
        return super().close(turn, closed=closed)

    def answer(self, asked: Source) -> Source:
        """Return the source of our attach: the subscription's, from its queue and bindings. Only once it is open."""
        self._source.outcomes, self._source.default_outcome = OUTCOMES, asked.default_outcome
        return self._source


class TargetTerminus(Terminus):
    """Target: the queue of a link's messages."""

    known: tuple[str, ...] = ("queue", "temporary-queue", IMMEDIATE)
    immediate = False

    def is_same(self, asked: Terminus) -> bool:
        """Return True if another attach asks for this queue, with the same *immediate*."""
        return super().is_same(asked) and isinstance(asked, TargetTerminus) and asked.immediate == self.immediate

    def route(self) -> str | Immediate | ExchangeRoute:
        """Return the route of a message that comes now: to the queue, or through an exchange."""
        return Immediate(self.queue) if self.immediate else self.queue

    def answer(self, asked: Target) -> Target:
        """Return the granted target, for our attach."""
        capabilities = _those(asked.capabilities, *self.known)
        policy, timeout = self.expiry
        return Target(address=asked.address, durable=0, expiry_policy=policy, timeout=timeout, capabilities=capabilities)


class ExchangeTarget(TargetTerminus):
    """Target: an exchange. Without a key in the address each message's subject is its routing key."""

    known = ("topic", "temporary-topic")

    def __init__(self, peer: Peer, exchange: str, key: str | None) -> None:
        super().__init__(peer, "", exchange)
        self._exchange, self._key = exchange, key

    def open(self, turn: Turn) -> None:
        """Count the link among those of the exchange. Raises PenstockError."""
        self._enter(turn, self._exchange)

    def is_same(self, asked: Terminus) -> bool:
        """Return True if another attach asks for this exchange, with the same routing key."""
        return super().is_same(asked) and isinstance(asked, ExchangeTarget) and asked._key == self._key

    def route(self) -> str | Immediate | ExchangeRoute:
        """Return the route through the exchange, by the address's key or each message's subject."""
        return exchange_route(self.peer, self._exchange, self._key)


class DynamicTarget(TargetTerminus):
    """Target: a node that is made for the link, a queue or a temporary topic."""

    makes = lasts = True

    def __init__(self, peer: Peer, lifetime: str, *, is_topic: bool, owned: bool) -> None:
        super().__init__(peer, "", None)
        self._lifetime = lifetime
        self.owned = owned
        self.is_topic = is_topic
        if is_topic:
            self.known = ("topic", "temporary-topic")

    def open(self, turn: Turn) -> None:
        """Make the queue or topic. Raises Refusal if the user may not, PenstockError."""
        self.named = dynamic.create(turn, self.peer, self._lifetime, is_topic=self.is_topic)
        if not self.is_topic:
            self.queue = self.named
        self._enter(turn, self.named, makes=True)

    def is_same(self, asked: Terminus) -> bool:
        """Return True if another attach asks for such a node again, or for this one by its name."""
        if type(asked) is DynamicTarget:
            return (asked._lifetime, asked.is_topic, asked.owned) == (self._lifetime, self.is_topic, self.owned)
        return isinstance(asked, TargetTerminus) and not asked.immediate and asked.named == self.named

    def route(self) -> str | Immediate | ExchangeRoute:
        """Return the route to the queue, or through the topic by each message's subject. Only once it is open."""
        assert self.named is not None
        return exchange_route(self.peer, self.named, None) if self.is_topic else super().route()

    def answer(self, asked: Target) -> Target:
        """Return the target of our attach, with the node's name and lifetime."""
        target = super().answer(asked)
        target.address, target.dynamic, target.dynamic_node_properties = self.named, True, dynamic.described(self._lifetime)
        return target


def exchange_route(peer: Peer, exchange: str, key: str | None) -> ExchangeRoute:
    """Return the route of this peer's messages through an exchange. Without a `key`, each message's subject is its key."""
    return ExchangeRoute(exchange, key, peer.container if peer.context.nodes.minds_senders(exchange) else None)


def _those(asked: tuple[str, ...], *known: str) -> tuple[str, ...]:
    return tuple(name for name in asked if name in known)
