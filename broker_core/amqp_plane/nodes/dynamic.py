"""Nodes that an attach makes (3.5.3, 3.5.4: *dynamic*): a queue, or for a temporary topic an exchange.

The broker names it `temp:…`. Anybody who may can send to it, and receive from it; only with the capability *temporary-queue* or
*temporary-topic* its connection alone receives from it. Who that is, and how long a node lives, is decided in the engine
(`lifetimes`), which is told when a link to it begins and when it ends.
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
from ..conditions import Refusal, forbidden
from ..connections.peer import Peer

PREFIX = "temp:"
NAME_OCTETS = 12  # random ones: nobody else's name is guessed or made twice
LIFETIME_POLICY = "lifetime-policy"
#: How a policy says its name on the wire → the option `lifetime` of a queue.
LIFETIMES = {
    0x2B: "link",
    "amqp:delete-on-close:list": "link",
    0x2C: "unused",
    "amqp:delete-on-no-links:list": "unused",
    0x2D: "empty",
    "amqp:delete-on-no-messages:list": "empty",
    0x2E: "unusedOrEmpty",
    "amqp:delete-on-no-links-or-messages:list": "unusedOrEmpty",
}
_POLICIES = {lifetime: code for code, lifetime in LIFETIMES.items() if isinstance(code, int)}


def new_name() -> str:
    """Make a name that nobody has: `temp:` and random octets in hexadecimal."""
    return PREFIX + secrets.token_hex(NAME_OCTETS)


def lifetime_of(properties: Mapping[str, Any] | None) -> str:
    """Read the lifetime that an attach asks for; without a policy a node goes with the link that made it. Raises Refusal."""
    policy = (properties or {}).get(LIFETIME_POLICY)
    if policy is None:
        return "link"
    known = ", ".join(name for name in LIFETIMES if isinstance(name, str))
    if not isinstance(policy, Described):  # 3.5.9: the value is of a type that provides the archetype
        raise Refusal(Condition.INVALID_FIELD, f"{LIFETIME_POLICY} is no described list, but {policy!r:.80}; known are {known}")
    found = LIFETIMES.get(policy.descriptor) if isinstance(policy.descriptor, (int, str)) else None
    if found is None:
        text = f"{LIFETIME_POLICY} {policy.descriptor!r:.80} is not known; known are lists described as {known}"
        raise Refusal(Condition.NOT_IMPLEMENTED, text)
    if policy.value != []:  # all four have no fields
        raise Refusal(
            Condition.INVALID_FIELD, f"{LIFETIME_POLICY} {policy.descriptor!r} is an empty list, not {policy.value!r:.80}"
        )
    return found


def create(turn: Turn, peer: Peer, lifetime: str, *, is_topic: bool) -> str:
    """Make a node, and return its name. Raises Refusal where such nodes are not for this user, PenstockError."""
    name = new_name()
    if not peer.may(Right.RECEIVE, name):
        raise forbidden(peer.user, Right.RECEIVE, f"{PREFIX}*")
    if is_topic:
        # It keeps no messages that could keep it.
        kept = "unused" if lifetime == "unused" else "link"
        turn.execute(c.DeclareExchange(name, "fanout", {"unroutable": "drop", "lifetime": kept}, peer.maker))
    else:
        turn.execute(c.DeclareQueue(name, options={"lifetime": lifetime}, maker=peer.maker))
    return name


def described(lifetime: str) -> dict[str, Any]:
    """Form the properties of a dynamic node, as our attach says them."""
    return {Symbol(LIFETIME_POLICY): Described(ULong(_POLICIES[lifetime]), [])}
