"""Subscriptions: a link from an exchange is a link from a queue of its own that is bound there.

How long the queue lives depends on the subscription (OASIS *AMQP binding for JMS*). A plain one ends with its link, a shared one
with the last of its links. A durable one (expiry *never*) has its link's name, and outlives its links and the broker. It ends
when a link detaches with *closed*, or when an attach with another address or filter makes a new one.

| queue | subscription |
|---|---|
| `temp:RANDOM` | plain |
| `shared:NAME` | shared by all containers |
| `shared:USER:CONTAINER:NAME` | shared by the links of one container |
| `sub:NAME` | durable, shared by all containers |
| `sub:USER:CONTAINER:NAME` | durable, of one container, shared or not |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from ...amqp import Condition, Source
from ...amqp.performatives import Error
from ...engine import commands as c
from ...engine.columns.limits import MAX_NAME
from ...engine.columns.states import ACQUIRED
from ...engine.model.queue import Queue
from ...security.rights import Right
from ...service.turn import Turn
from .. import queue_reads
from ..conditions import Refusal
from ..connections.peer import Peer
from ..links.endpoint import NEVER
from .dynamic import new_name
from .filters import Filters, filter_set

SHARED, GLOBAL = "shared", "global"
SUFFIX = "|"  # the rest of the name distinguishes the links of one shared subscription
EVERYTHING = "#"  # the pattern of a topic exchange that matches every key


@dataclass(frozen=True)
class LinkSubscription:
    """A subscription that a link asks for. `key`: the routing key or pattern of its address."""

    queue: str
    exchange: str
    key: str | None
    selector: str | None
    no_local: str | None
    durable: bool
    shared: bool

    def open(self, turn: Turn, peer: Peer) -> None:
        """Find or make the subscription. Raises Refusal, PenstockError."""
        queue, binding = queue_reads.find(turn, self.queue), self._binding(turn)
        if queue is not None:
            self._check_kind(queue)
            if _leads(turn, binding):
                return
            self._check_unused(queue)
            check_rights(turn, peer, self.queue)
            turn.execute(binding)  # first: a failed binding changes nothing
            turn.execute(c.DeleteQueue(self.queue))
        turn.execute(c.DeclareQueue(self.queue, options=self._options, maker=peer.maker))
        error = turn.carry_out(binding).error
        if error is not None:
            turn.execute(c.DeleteQueue(self.queue))
            raise error

    @property
    def _options(self) -> dict[str, Any]:
        if self.durable:
            return {} if self.shared else {"consumers": "exclusive"}
        return {"lifetime": "unused" if self.shared else "link"}

    def _binding(self, turn: Turn) -> c.Bind:
        key = self.key
        if key is None:
            key = EVERYTHING if queue_reads.exchange_kind(turn, self.exchange) == "topic" else ""
        return c.Bind(self.exchange, self.queue, key, selector=self.selector, no_local=self.no_local)

    def _check_kind(self, queue: Queue) -> None:
        if self.durable and self.shared == is_alone(queue):
            kind = "not shared" if self.shared else "shared"
            text = f"the subscription {self.queue!r} is {kind}: end it first, or name another"
            raise Refusal(Condition.PRECONDITION_FAILED, text)

    def _check_unused(self, queue: Queue) -> None:
        if queue.consumers.subscriptions:
            text = f"the subscription {self.queue!r} is in use with another address or filter: end its links first"
            raise Refusal(Condition.RESOURCE_LOCKED, text)
        if queue.counts[ACQUIRED]:  # by transactions or leases
            text = f"messages of the subscription {self.queue!r} are in an open transaction, or a lease's: end that first"
            raise Refusal(Condition.RESOURCE_LOCKED, text)


def is_alone(queue: Queue) -> bool:
    return queue.rules.consumers == "exclusive"


def check_rights(turn: Turn, peer: Peer, queue: str) -> None:
    """The user must be allowed to receive from the exchanges of a durable subscription."""
    about = [exchange for exchange, _ in queue_reads.bindings(turn, queue)]
    for exchange in about:
        if not peer.may(Right.RECEIVE, exchange):
            raise peer.forbidden(Right.RECEIVE, exchange)
    known, everybodys = queue_reads.find(turn, queue), queue.count(":") == 1
    if not about and everybodys and known is not None and known.live:  # the user who may receive its messages is unknown
        text = f"the exchange of the subscription {queue!r} is gone: an operator may delete it by `penstock queue delete`"
        raise Refusal(Condition.PRECONDITION_FAILED, text)


def _leads(turn: Turn, wanted: c.Bind) -> bool:
    leading = [
        (exchange, binding.key, binding.selector, binding.no_local)
        for exchange, binding in queue_reads.bindings(turn, wanted.queue)
    ]
    return leading == [(wanted.exchange, wanted.key, wanted.selector, wanted.no_local)]


def end(turn: Turn, queue: str) -> bool:
    """End a durable subscription. Returns False if other links still use it."""
    known = queue_reads.find(turn, queue)
    if known is not None and known.consumers.subscriptions:
        return False
    if known is not None:
        turn.execute(c.DeleteQueue(queue, force=True))
    return True


def in_use(name: str) -> Error:
    text = f"the subscription {name!r:.80} is in use: end its other links first"
    return Error(condition=Condition.RESOURCE_LOCKED, description=text)


def of_topic(peer: Peer, topic: str, filters: Filters) -> LinkSubscription:
    selector = None if filters.selector is None else filters.selector.text
    no_local = peer.container if filters.no_local else None
    return LinkSubscription(new_name(), topic, None, selector, no_local, durable=False, shared=False)


def of_link(peer: Peer, name: str, source: Source, exchange: str, key: str | None, filters: Filters) -> LinkSubscription:
    durable = source.expiry_policy == NEVER
    shared, everybodys = SHARED in source.capabilities, GLOBAL in source.capabilities
    if not durable and not shared:
        queue = new_name()
    else:
        queue = _queue(peer, name.partition(SUFFIX)[0] if shared else name, durable=durable, everybodys=shared and everybodys)
    selector = None if filters.selector is None else filters.selector.text
    return LinkSubscription(queue, exchange, key, selector, peer.container if filters.no_local else None, durable, shared)


def of_name(peer: Peer, name: str, desired: tuple[str, ...]) -> str:
    everybodys = GLOBAL in desired
    return _queue(peer, name.partition(SUFFIX)[0] if everybodys else name, durable=True, everybodys=everybodys)


def _queue(peer: Peer, name: str, *, durable: bool, everybodys: bool) -> str:
    parts = ["sub" if durable else "shared", *([] if everybodys else [peer.user, peer.container]), name]
    queue = ":".join(_quoted(part) for part in parts)
    if not name or len(queue) > MAX_NAME:
        raise Refusal(Condition.INVALID_FIELD, f"a subscription's name, with its container's, has 1 to {MAX_NAME} characters")
    return queue


def _quoted(part: str) -> str:
    """Escape characters that separate parts or routing keys, or are invalid in a name (see `engine.model.names`)."""
    return "".join(_escaped(char) if char in ":/%" or not char.isprintable() else char for char in part)


def _escaped(char: str) -> str:
    return "".join(f"%{octet:02X}" for octet in char.encode())


def described(turn: Turn, queue: str) -> Source | None:
    """Return the source of a durable subscription; None if it does not exist."""
    known = queue_reads.find(turn, queue)
    if known is None:
        return None
    capabilities = ("topic",) if is_alone(known) else ("topic", SHARED)
    # Its exchange may be deleted.
    source = Source(address=queue, durable=1, expiry_policy=NEVER, distribution_mode="copy", capabilities=capabilities)
    for exchange, binding in queue_reads.bindings(turn, queue):
        source.address = exchange if binding.key in ("", EVERYTHING) else f"{exchange}/{binding.key}"
        source.filter = filter_set(binding.selector, binding.no_local is not None)
    return source
