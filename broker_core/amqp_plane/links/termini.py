"""Termini: the sources and targets of links.

They are read when the attach arrives, opened in its commit, and closed after the link has given back its messages.
"""

from __future__ import annotations

from dataclasses import replace

from ...amqp import Condition, Source, Target
from ...amqp.performatives import Attach, Error
from ...amqp.types import Value
from ...engine import commands as c
from ...security.users import ANONYMOUS
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
    """`asked`: the filters of the attach. `filters`: those of the link itself; a subscription has the others."""

    receives = True

    def __init__(self, peer: Peer, queue: str, named: str | None, filters: Filters, *, browse: bool = False) -> None:
        super().__init__(peer, queue, named)
        self.filters = self.asked = filters
        self.browse = browse
        self.options = LinkOptions()

    def granted(self, asked: object) -> Expiry:
        # A browser has nothing to come back to.
        return Expiry("link-detach") if self.browse else super().granted(asked)

    def subscribe(self) -> c.Subscribe:
        selector = self.filters.selector
        text = None if selector is None else selector.text
        user = None if self.peer.user == ANONYMOUS else self.peer.user
        return c.Subscribe(self.queue, self.options.priority, self.options.exclusive, text, user, self.peer.container)

    def is_same(self, asked: Terminus) -> bool:
        return super().is_same(asked) and self.is_alike(asked)

    def is_alike(self, asked: Terminus) -> bool:
        """Compare all but the node."""
        if not isinstance(asked, SourceTerminus) or (self.browse, self.options) != (asked.browse, asked.options):
            return False
        return self.asked.answered == asked.asked.answered

    def properties(self, theirs: Attach) -> dict[str, Value]:
        return self.options.answered(theirs)

    def answer(self, asked: Source) -> Source:
        """Return the granted source, for our attach."""
        is_dynamic = self.lifetime is not None
        return Source(
            address=self.named if is_dynamic else asked.address,
            durable=0,
            expiry_policy=self.expiry.policy,
            timeout=self.expiry.timeout,
            dynamic=is_dynamic,
            dynamic_node_properties=dynamic.described(self.lifetime),
            distribution_mode="copy" if self.browse else "move",
            filter=self.asked.answered,
            default_outcome=asked.default_outcome,
            outcomes=OUTCOMES,
            capabilities=chosen(asked.capabilities, "queue", "temporary-queue", *[EXCLUSIVE] * self.options.exclusive),
        )


class DynamicSource(SourceTerminus):
    """Source: a queue that is made for the link."""

    makes = lasts = True

    def __init__(self, peer: Peer, lifetime: str, filters: Filters, *, owned: bool) -> None:
        super().__init__(peer, "", None, filters)
        self.lifetime: str = lifetime
        self.owned = owned

    def open(self, turn: Turn) -> None:
        self.named = self.queue = dynamic.create(turn, self.peer, self.lifetime, is_topic=False)
        super().open(turn)

    def is_same(self, asked: Terminus) -> bool:
        """Also True for an attach that asks for this node by its name."""
        again = type(asked) is DynamicSource and (asked.lifetime, asked.owned) == (self.lifetime, self.owned)
        return (again or (type(asked) is SourceTerminus and asked.named == self.named)) and self.is_alike(asked)


class DynamicTopicSource(SourceTerminus):
    """A temporary topic that is made for the link, which receives by its own subscription."""

    lasts = True

    def __init__(self, peer: Peer, lifetime: str, filters: Filters, *, owned: bool) -> None:
        super().__init__(peer, "", None, Filters())
        self.lifetime: str = lifetime
        self.asked = filters
        self.owned = owned

    def open(self, turn: Turn) -> None:
        self.named = dynamic.create(turn, self.peer, self.lifetime, is_topic=True)
        self._enter(turn, self.named, makes=True)
        subscription = subscriptions.of_topic(self.peer, self.named, self.asked)
        subscription.open(turn, self.peer)
        self.queue = subscription.queue
        self._enter(turn, self.queue, makes=True)

    def is_same(self, asked: Terminus) -> bool:
        """Also True for an attach that asks for this topic by its name, with the same filters."""
        if type(asked) is DynamicTopicSource:
            return (asked.lifetime, asked.owned) == (self.lifetime, self.owned) and self.is_alike(asked)
        return isinstance(asked, SubscriptionSource) and asked.is_plain(self.named, self.asked)

    def answer(self, asked: Source) -> Source:
        source = super().answer(asked)
        source.distribution_mode = "copy"
        source.capabilities = chosen(asked.capabilities, "topic", "temporary-topic")
        return source


class SubscriptionSource(SourceTerminus):
    """An exchange, through the queue of a subscription. The binding holds its filters."""

    def __init__(self, peer: Peer, subscription: LinkSubscription, filters: Filters) -> None:
        super().__init__(peer, subscription.queue, subscription.exchange, Filters())
        self._subscription, self.asked = subscription, filters
        self.makes = self.lasts = not (subscription.durable or subscription.shared)

    def granted(self, asked: object) -> Expiry:
        """Grant an expiry. A subscription of one link is kept for that link, on any connection.

        Messages of a durable subscription go back with its session, since other links may wait for them.
        """
        if self._subscription.durable:
            return Expiry()
        return (
            Expiry.granted(asked, self.peer.context.settings.amqp_max_expiry_timeout_s) if isinstance(asked, Source) else Expiry()
        )

    def is_same(self, asked: Terminus) -> bool:
        if not isinstance(asked, SubscriptionSource) or not self.is_alike(asked):
            return False
        mine, theirs = self._subscription, asked._subscription
        if self.makes:  # then each attach has its own name
            mine = replace(mine, queue=theirs.queue)
        return mine == theirs

    def is_plain(self, exchange: str | None, filters: Filters) -> bool:
        wanted = self._subscription
        return self.makes and (wanted.exchange, wanted.key) == (exchange, None) and self.asked.answered == filters.answered

    def open(self, turn: Turn) -> None:
        self._enter(turn, self._subscription.exchange)
        self._subscription.open(turn, self.peer)
        super().open(turn)

    def close(self, turn: Turn, *, closed: bool) -> Error | None:
        """A closing detach also ends a durable subscription, if no other link uses it."""
        left = super().close(turn, closed=closed)
        if closed and self._subscription.durable and not subscriptions.end(turn, self.queue):
            return subscriptions.in_use(self.queue)
        return left

    def answer(self, asked: Source) -> Source:
        source = super().answer(asked)
        source.distribution_mode = "copy"  # each subscription has its own copy
        source.capabilities = chosen(asked.capabilities, "topic", "temporary-topic", subscriptions.SHARED, subscriptions.GLOBAL)
        if self._subscription.durable:
            source.durable, source.expiry_policy, source.timeout = 1, NEVER, 0
        return source


class KnownSubscription(SourceTerminus):
    """Source of an attach without a source: the durable subscription of that name, to be resumed or ended."""

    def __init__(self, peer: Peer, name: str, queue: str) -> None:
        super().__init__(peer, queue, None, Filters())
        self._name = name
        self._source = Source()
        self._opened = False

    def is_same(self, asked: Terminus) -> bool:
        """Return False: the attach has no source to compare."""
        return False

    def open(self, turn: Turn) -> None:
        source = subscriptions.described(turn, self.queue)
        if source is None:
            raise Refusal(Condition.NOT_FOUND, f"this container has no durable subscription {self._name!r:.80}")
        subscriptions.check_rights(turn, self.peer, self.queue)
        self.named = str(source.address).partition("/")[0]
        self._source, self._opened = source, True
        super().open(turn)

    def close(self, turn: Turn, *, closed: bool) -> Error | None:
        """A closing detach also ends a durable subscription, if no other link uses it."""
        if closed and self._opened and not subscriptions.end(turn, self.queue):
            return subscriptions.in_use(self._name)
        return super().close(turn, closed=closed)

    def answer(self, asked: Source) -> Source:
        self._source.outcomes, self._source.default_outcome = OUTCOMES, asked.default_outcome
        return self._source


class TargetTerminus(Terminus):
    """Target: the queue of a link's messages."""

    known: tuple[str, ...] = ("queue", "temporary-queue", IMMEDIATE)
    immediate = False

    def is_same(self, asked: Terminus) -> bool:
        return super().is_same(asked) and isinstance(asked, TargetTerminus) and asked.immediate == self.immediate

    def route(self) -> str | Immediate | ExchangeRoute:
        return Immediate(self.queue) if self.immediate else self.queue

    def answer(self, asked: Target) -> Target:
        """Return the granted target, for our attach."""
        is_dynamic = self.lifetime is not None
        return Target(
            address=self.named if is_dynamic else asked.address,
            durable=0,
            expiry_policy=self.expiry.policy,
            timeout=self.expiry.timeout,
            dynamic=is_dynamic,
            dynamic_node_properties=dynamic.described(self.lifetime),
            capabilities=chosen(asked.capabilities, *self.known),
        )


class ExchangeTarget(TargetTerminus):
    """Target: an exchange."""

    known = ("topic", "temporary-topic")

    def __init__(self, peer: Peer, exchange: str, key: str | None) -> None:
        super().__init__(peer, "", exchange)
        self._exchange, self._key = exchange, key

    def open(self, turn: Turn) -> None:
        self._enter(turn, self._exchange)

    def is_same(self, asked: Terminus) -> bool:
        return super().is_same(asked) and isinstance(asked, ExchangeTarget) and asked._key == self._key

    def route(self) -> str | Immediate | ExchangeRoute:
        return exchange_route(self.peer, self._exchange, self._key)


class DynamicTarget(TargetTerminus):
    """Target: a node that is made for the link, a queue or a temporary topic."""

    makes = lasts = True

    def __init__(self, peer: Peer, lifetime: str, *, is_topic: bool, owned: bool) -> None:
        super().__init__(peer, "", None)
        self.lifetime: str = lifetime
        self.owned = owned
        self.is_topic = is_topic
        if is_topic:
            self.known = ("topic", "temporary-topic")

    def open(self, turn: Turn) -> None:
        self.named = dynamic.create(turn, self.peer, self.lifetime, is_topic=self.is_topic)
        if not self.is_topic:
            self.queue = self.named
        self._enter(turn, self.named, makes=True)

    def is_same(self, asked: Terminus) -> bool:
        """Also True for an attach that asks for this node by its name."""
        if type(asked) is DynamicTarget:
            return (asked.lifetime, asked.is_topic, asked.owned) == (self.lifetime, self.is_topic, self.owned)
        return isinstance(asked, TargetTerminus) and not asked.immediate and asked.named == self.named

    def route(self) -> str | Immediate | ExchangeRoute:
        assert self.named is not None
        return exchange_route(self.peer, self.named, None) if self.is_topic else super().route()


def exchange_route(peer: Peer, exchange: str, key: str | None) -> ExchangeRoute:
    """Without a `key`, each message's subject is its routing key."""
    return ExchangeRoute(exchange, key, peer.container if peer.context.nodes.minds_senders(exchange) else None)


def chosen(asked: tuple[str, ...], *known: str) -> tuple[str, ...]:
    """Return the capabilities that we offer."""
    return tuple(name for name in asked if name in known)
