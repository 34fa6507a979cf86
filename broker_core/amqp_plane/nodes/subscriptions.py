"""Subscriptions: a link from an exchange is a link from a queue of its own that is bound there.

What keeps the queue is the subscription's kind (OASIS *AMQP binding for JMS*). A plain one ends with its link. A shared one,
which links of one container or of all use together, ends with the last of them. A durable one (expiry *never*) outlives them, and
the broker, under its link's name: until a link detaches from it with *closed*, or it is asked for with another address or filter,
which makes it anew. The queue's name says whose it is:

    temp:RANDOM                                  plain
    shared:NAME, shared:USER:CONTAINER:NAME      shared by all, by the links of one container
    sub:NAME,    sub:USER:CONTAINER:NAME         durable: shared by all; of one container, shared or not
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...amqp import Condition, Source
from ...amqp.performatives import Error
from ...engine import commands as c
from ...engine.columns.limits import MAX_NAME
from ...errors import PenstockError, StorageError
from ...security.rights import Right
from ...service.nodes import QueueFacts
from ...service.turn import Turn
from ..conditions import Refusal, forbidden
from ..connections.peer import Peer
from ..links.endpoint import NEVER
from .dynamic import new_name
from .filters import Filters, filter_set

SHARED, GLOBAL = "shared", "global"
SUFFIX = "|"  # what tells several links of one shared subscription apart stands behind it
EVERYTHING = "#"  # the pattern of a topic exchange that matches every key


@dataclass(frozen=True)
class LinkSubscription:
    """A subscription that a link wants to have. `key`: the routing key or pattern of its address, None where it has none."""

    queue: str
    exchange: str
    key: str | None
    selector: str | None
    no_local: str | None
    durable: bool
    shared: bool

    def open(self, turn: Turn, peer: Peer) -> None:
        """Find it, or make it. Raises Refusal where it is there otherwise and in use, or shared and this is not;
        PenstockError."""
        queue, binding = turn.view.queue_facts(self.queue), self._binding(turn)
        if queue is not None:
            self._check_kind(queue)
            if _leads(turn, binding):
                return
            self._check_unused(queue)
            check_rights(turn, peer, self.queue)
            turn.execute(binding)  # what cannot be bound changes nothing
            turn.execute(c.DeleteQueue(self.queue))
        turn.execute(c.DeclareQueue(self.queue, options=self._options, maker=peer.maker))
        try:
            turn.execute(binding)
        except StorageError:
            raise
        except PenstockError:
            turn.execute(c.DeleteQueue(self.queue))
            raise

    @property
    def _options(self) -> dict[str, Any]:
        if self.durable:
            return {} if self.shared else {"consumers": "exclusive"}
        return {"lifetime": "unused" if self.shared else "link"}

    def _binding(self, turn: Turn) -> c.Bind:
        key = self.key
        if key is None:
            key = EVERYTHING if turn.view.exchange_type(self.exchange) == "topic" else ""
        return c.Bind(self.exchange, self.queue, key, selector=self.selector, no_local=self.no_local)

    def _check_kind(self, queue: QueueFacts) -> None:
        if self.durable and self.shared == is_alone(queue):
            there = "not shared" if self.shared else "shared"
            raise Refusal(
                Condition.PRECONDITION_FAILED, f"the subscription {self.queue!r} is {there}: end it first, or name another"
            )

    def _check_unused(self, queue: QueueFacts) -> None:
        if queue.in_use:
            text = f"the subscription {self.queue!r} is in use with another address or filter: end its links first"
            raise Refusal(Condition.RESOURCE_LOCKED, text)
        if queue.acquired:  # not by links
            text = f"messages of the subscription {self.queue!r} are in an open transaction, or a lease's: end that first"
            raise Refusal(Condition.RESOURCE_LOCKED, text)


def is_alone(queue: QueueFacts) -> bool:
    """Say whether a durable subscription is one link's at a time."""
    return queue.consumers == "exclusive"


def check_rights(turn: Turn, peer: Peer, queue: str) -> None:
    """Check that the user may receive from what a durable subscription is about: its name is not only its maker's. Raises
    Refusal."""
    about = [exchange for exchange, _ in turn.view.bindings(queue)]
    for exchange in about:
        if not peer.may(Right.RECEIVE, exchange):
            raise forbidden(peer.user, Right.RECEIVE, exchange)
    there, everybodys = turn.view.queue_facts(queue), queue.count(":") == 1
    if not about and everybodys and there is not None and there.live:  # whose its messages are nobody knows any more
        text = f"the exchange of the subscription {queue!r} is gone: an operator may delete it by `penstock queue delete`"
        raise Refusal(Condition.PRECONDITION_FAILED, text)


def _leads(turn: Turn, wanted: c.Bind) -> bool:
    """Say whether just this binding leads to its queue."""
    there = [(exchange, each.key, each.selector, each.no_local) for exchange, each in turn.view.bindings(wanted.queue)]
    return there == [(wanted.exchange, wanted.key, wanted.selector, wanted.no_local)]


def end(turn: Turn, queue: str) -> bool:
    """End a durable subscription; False where other links are still there."""
    there = turn.view.queue_facts(queue)
    if there is not None and there.in_use:
        return False
    if there is not None:
        turn.execute(c.DeleteQueue(queue, force=True))
    return True


def in_use(name: str) -> Error:
    """Form the error for a link that wants to end a durable subscription from which other links receive."""
    text = f"the subscription {name!r:.80} is in use: end its other links first"
    return Error(condition=Condition.RESOURCE_LOCKED, description=text)


def of_topic(peer: Peer, topic: str, filters: Filters) -> LinkSubscription:
    """Form the subscription of a link for which a temporary topic is made."""
    selector = None if filters.selector is None else filters.selector.text
    no_local = peer.container if filters.no_local else None
    return LinkSubscription(new_name(), topic, None, selector, no_local, durable=False, shared=False)


def of_link(peer: Peer, name: str, source: Source, exchange: str, key: str | None, filters: Filters) -> LinkSubscription:
    """Form the subscription of a link with this name and source. Raises Refusal for a name that is too long."""
    durable = source.expiry_policy == NEVER
    shared, everybodys = SHARED in source.capabilities, GLOBAL in source.capabilities
    if not durable and not shared:
        queue = new_name()
    else:
        queue = _queue(peer, name.partition(SUFFIX)[0] if shared else name, durable=durable, everybodys=shared and everybodys)
    selector = None if filters.selector is None else filters.selector.text
    return LinkSubscription(queue, exchange, key, selector, peer.container if filters.no_local else None, durable, shared)


def of_name(peer: Peer, name: str, desired: tuple[str, ...]) -> str:
    """Name the queue of the durable subscription that a link without a source means by its name."""
    everybodys = GLOBAL in desired
    return _queue(peer, name.partition(SUFFIX)[0] if everybodys else name, durable=True, everybodys=everybodys)


def _queue(peer: Peer, name: str, *, durable: bool, everybodys: bool) -> str:
    parts = ["sub" if durable else "shared", *([] if everybodys else [peer.user, peer.container]), name]
    found = ":".join(_quoted(part) for part in parts)
    if not name or len(found) > MAX_NAME:
        raise Refusal(Condition.INVALID_FIELD, f"a subscription's name, with its container's, has 1 to {MAX_NAME} characters")
    return found


def _quoted(part: str) -> str:
    """Escape what separates parts, or an exchange from its key, or cannot be in a name (see `engine.model.names`)."""
    return "".join(_escaped(char) if char in ":/%" or not char.isprintable() else char for char in part)


def _escaped(char: str) -> str:
    return "".join(f"%{octet:02X}" for octet in char.encode())


def described(turn: Turn, queue: str) -> Source | None:
    """Form the source of a durable subscription that is known by its queue alone; None when it is not there."""
    there = turn.view.queue_facts(queue)
    if there is None:
        return None
    capabilities = ("topic",) if is_alone(there) else ("topic", SHARED)
    # Its exchange may be gone: then the queue is all there is.
    source = Source(address=queue, durable=1, expiry_policy=NEVER, distribution_mode="copy", capabilities=capabilities)
    for exchange, binding in turn.view.bindings(queue):
        source.address = exchange if binding.key in ("", EVERYTHING) else f"{exchange}/{binding.key}"
        source.filter = filter_set(binding.selector, binding.no_local is not None)
    return source
