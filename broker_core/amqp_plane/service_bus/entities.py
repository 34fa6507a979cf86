"""Addresses of entities.

    QUEUE   TOPIC   TOPIC/Subscriptions/NAME   QUEUE or subscription/$DeadLetterQueue   ENTITY/$management   $cbs

A topic is an exchange. Its subscription NAME is the queue `TOPIC.NAME`, which an operator binds to the exchange.
An SDK writes a URI (`amqps://HOST/QUEUE`) or a path. The host is not compared: a broker may have several names. Parts that begin
with `$`, and `Subscriptions`, are written in any case. Names are compared exactly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple
from urllib.parse import unquote

from ...amqp import Condition
from ...security.rights import Right
from ..conditions import Refusal
from ..connections.peer import Peer
from ..nodes import addresses
from . import vendor

MAX_PARTS = 8  # of an address; the longest entity has 5, and claims are compared part by part


class Entity(NamedTuple):
    """A parsed address. `node` is CBS or MANAGEMENT if the address names that node of an entity."""

    path: tuple[str, ...]  # without the last part of a node
    node: str | None = None

    @property
    def claimed(self) -> tuple[str, ...]:
        """The path for which a client needs a token: JavaScript's SDK has one for the node alone."""
        return self.path if self.node is None else (*self.path, self.node)

    @property
    def name(self) -> str:
        """The entity as a client writes it, for errors."""
        return "/".join(self.path)


def path_of(address: object) -> tuple[str, ...]:
    """Return the parts of an address. Parts that clients write in any case have one case. Raises Refusal."""
    if not isinstance(address, str):
        raise Refusal(Condition.INVALID_FIELD, f"an address is the name of an entity, not {address!r:.80}")
    scheme, is_uri, rest = address.partition("://")
    path = rest.partition("/")[2] if is_uri and scheme.isalpha() else address
    parts = [part.lower() if part[0] == "$" else part for part in unquote(path).split("/") if part]
    if len(parts) > MAX_PARTS:
        raise Refusal(Condition.INVALID_FIELD, f"the address {address!r:.80} has more than {MAX_PARTS} parts")
    if len(parts) > 2 and parts[1].lower() == vendor.SUBSCRIPTIONS.lower():
        parts[1] = vendor.SUBSCRIPTIONS
    return tuple(parts)


def parse(address: object) -> Entity:
    """Raises Refusal."""
    path = path_of(address)
    if not path:
        raise Refusal(Condition.INVALID_FIELD, f"the address {address!r:.80} names no entity")
    if path[-1] == vendor.MANAGEMENT and len(path) > 1:
        return Entity(path[:-1], vendor.MANAGEMENT)
    return Entity(path, vendor.CBS if path == (vendor.CBS,) else None)


def node_of(path: tuple[str, ...]) -> tuple[str, tuple[str, ...]]:
    """Return the queue or exchange that a path begins with, and the rest of the path."""
    if len(path) > 2 and path[1] == vendor.SUBSCRIPTIONS:
        return f"{path[0]}.{path[2]}", path[3:]
    return path[0], path[1:]


def queue_of(peer: Peer, entity: Entity, *rights: Right, makes: bool = False) -> str:
    """Return the queue of an entity, on which the user has one of the rights. Raises Refusal, NotFound.

    `makes`: a policy may make it on first use. A request makes none: its token was put before.
    """
    name, rest = node_of(entity.path)
    queue = _queue_named(peer, name, rights, makes=makes)
    if not rest:
        return queue
    if rest == (vendor.DEAD_LETTERS,):
        dead_letters = peer.context.broker.rules(queue).dead_letter_queue
        if dead_letters is None:
            raise missing(entity.name, f"queue {name!r:.80} needs the option deadLetterQueue (`penstock queue alter`)")
        return _queue_named(peer, dead_letters, rights, makes=makes)
    forms = "QUEUE, TOPIC or TOPIC/Subscriptions/NAME, and /$DeadLetterQueue or /$management"
    raise missing(entity.name, f"it is not {forms}")


def _queue_named(peer: Peer, name: str, rights: Sequence[Right], *, makes: bool) -> str:
    right = next((right for right in rights if peer.may(right, name)), rights[-1])
    return addresses.find(peer, name, right, ("queue",), makes=makes).name


def missing(name: str, advice: str) -> Refusal:
    """SDKs recognize the first words, and connect again otherwise."""
    return Refusal(Condition.NOT_FOUND, f"The messaging entity {name!r:.80} could not be found: {advice}")
