"""Nodes that an attach makes (3.5.3, 3.5.4: *dynamic*): a queue, or an exchange for a temporary topic.

With the capability *temporary-queue* or *temporary-topic*, only its connection receives from it. The engine decides about that
and about the node's lifetime.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from typing import Any

from ...amqp import Condition
from ...amqp.types import Described, Symbol, ULong
from ...engine import commands as c
from ...security.rights import Right
from ...service.turn import Turn
from ..conditions import Refusal
from ..connections.peer import Peer

PREFIX = "temp:"
NAME_OCTETS = 12  # random, so that a name is unique and cannot be guessed
LIFETIME_POLICY = "lifetime-policy"
#: The option `lifetime` of a queue → the descriptor of the policy, as a number and as a name.
POLICIES = {
    "link": (0x2B, "amqp:delete-on-close:list"),
    "unused": (0x2C, "amqp:delete-on-no-links:list"),
    "empty": (0x2D, "amqp:delete-on-no-messages:list"),
    "unusedOrEmpty": (0x2E, "amqp:delete-on-no-links-or-messages:list"),
}


def new_name() -> str:
    return PREFIX + secrets.token_hex(NAME_OCTETS)


def lifetime_of(properties: Mapping[str, Any] | None) -> str:
    """Read the lifetime that an attach asks for. Raises Refusal."""
    policy = (properties or {}).get(LIFETIME_POLICY)
    if policy is None:
        return "link"
    known = ", ".join(name for _, name in POLICIES.values())
    if not isinstance(policy, Described):  # 3.5.9: the value is of a type that provides the archetype
        text = f"{LIFETIME_POLICY} must be a described list, not {policy!r:.80}; known are {known}"
        raise Refusal(Condition.INVALID_FIELD, text)
    lifetime = next((lifetime for lifetime, descriptors in POLICIES.items() if policy.descriptor in descriptors), None)
    if lifetime is None:
        text = f"{LIFETIME_POLICY} {policy.descriptor!r:.80} is not known; known are lists described as {known}"
        raise Refusal(Condition.NOT_IMPLEMENTED, text)
    if policy.value != []:  # all four have no fields
        text = f"{LIFETIME_POLICY} {policy.descriptor!r} is an empty list, not {policy.value!r:.80}"
        raise Refusal(Condition.INVALID_FIELD, text)
    return lifetime


def create(turn: Turn, peer: Peer, lifetime: str, *, is_topic: bool) -> str:
    """Make a node, and return its name. Raises Refusal, PenstockError."""
    name = new_name()
    if not peer.may(Right.RECEIVE, name):
        raise peer.forbidden(Right.RECEIVE, f"{PREFIX}*")
    if is_topic:
        # It holds no messages, so messages cannot extend its life.
        topic_lifetime = "unused" if lifetime == "unused" else "link"
        turn.execute(c.DeclareExchange(name, "fanout", {"unroutable": "drop", "lifetime": topic_lifetime}, peer.maker))
    else:
        turn.execute(c.DeclareQueue(name, options={"lifetime": lifetime}, maker=peer.maker))
    return name


def described(lifetime: str | None) -> dict[str, Any] | None:
    return None if lifetime is None else {Symbol(LIFETIME_POLICY): Described(ULong(POLICIES[lifetime][0]), [])}
