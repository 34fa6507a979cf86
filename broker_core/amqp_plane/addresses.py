"""What a link's termini name: a queue that is there and that the user may use, or a refusal with its condition.

An attach never creates anything. The answer says what holds: the address, the distribution mode, the outcomes we know; of the
filters none yet, and one whose neglect would give a client the wrong messages is refused instead of left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from broker_core.amqp import Condition, Source, Target
from broker_core.amqp.performatives import Coordinator
from broker_core.amqp.types import Described
from broker_core.amqp_plane.conditions import Refusal
from broker_core.security.rights import Right

if TYPE_CHECKING:
    from broker_core.amqp.performatives import Attach
    from broker_core.amqp.types import Value
    from broker_core.amqp_plane.peer import Peer

OUTCOMES = ("amqp:accepted:list", "amqp:rejected:list", "amqp:released:list", "amqp:modified:list")
# Filters that select: a link without them would get messages that it did not ask for.
_SELECTING = (
    "apache.org:selector-filter:string",
    "apache.org:no-local-filter:list",
    0x0000468C00000004,
    0x0000468C00000003,
)


def find_queue(peer: Peer, address: Value, right: Right) -> str:
    """The queue of that name; Refusal if there is none, or none for this user."""
    if not isinstance(address, str) or not address:
        raise Refusal(Condition.INVALID_FIELD, f"an address is the name of a queue, not {address!r:.80}")
    if not peer.may(right, address):
        raise forbidden(peer, right, address)
    if not peer.plane.knows(address):
        raise Refusal(Condition.NOT_FOUND, f"there is no queue {address!r:.80}: declare it with `penstock queue declare`")
    return address


def forbidden(peer: Peer, right: Right, address: str) -> Refusal:
    """The same whether the queue exists or not: names are not for those who may not use them."""
    return Refusal(Condition.UNAUTHORIZED_ACCESS, f"user {peer.user!r} may not {right.name.lower()} at {address!r:.80}")


def find_target(peer: Peer, target: object) -> str | None:
    """The queue that a sender's attach names; None for the anonymous terminus."""
    if isinstance(target, Coordinator):
        raise Refusal(Condition.NOT_IMPLEMENTED, "this version has no transactions")
    if isinstance(target, Described):
        raise Refusal(Condition.NOT_IMPLEMENTED, f"no target of the type {target.descriptor!r:.80} is known here")
    if not isinstance(target, Target):
        raise Refusal(Condition.INVALID_FIELD, "a sender's attach needs a target")
    if target.dynamic:
        raise Refusal(Condition.NOT_IMPLEMENTED, "this version makes no dynamic nodes: name a queue that exists")
    return None if target.address is None else find_queue(peer, target.address, Right.SEND)


def find_source(peer: Peer, source: object) -> tuple[str, bool]:
    """The queue that a receiver's attach names, and whether it only looks (distribution mode *copy*)."""
    if isinstance(source, Described):
        raise Refusal(Condition.NOT_IMPLEMENTED, f"no source of the type {source.descriptor!r:.80} is known here")
    if not isinstance(source, Source):
        raise Refusal(Condition.INVALID_FIELD, "a receiver's attach needs a source")
    if source.dynamic:
        raise Refusal(Condition.NOT_IMPLEMENTED, "this version makes no dynamic nodes: name a queue that exists")
    for name, value in (source.filter or {}).items():
        # What says which filter it is, is the descriptor of its value; some clients put it into the name alone.
        if getattr(value, "descriptor", name) in _SELECTING:
            raise Refusal(Condition.NOT_IMPLEMENTED, "this version has no selectors: leave the filter out")
    browse = source.distribution_mode == "copy"
    return find_queue(peer, source.address, Right.BROWSE if browse else Right.RECEIVE), browse


def forget_terms(*attaches: Attach | None) -> None:
    """Once it is answered nothing of an attach is asked for but its modes and sizes: a peer's links could keep a frame each."""
    for attach in attaches:
        if attach is not None:
            attach.source = attach.target = attach.unsettled = attach.properties = None
            attach.offered_capabilities = attach.desired_capabilities = ()


def answered_source(source: Source, browse: bool) -> Source:
    """The source as it is: what our attach says."""
    return Source(
        address=source.address,
        durable=0,
        expiry_policy="link-detach",  # a terminus does not outlive its link: what it held goes back at the detach
        distribution_mode="copy" if browse else "move",
        default_outcome=source.default_outcome,
        outcomes=OUTCOMES,
        capabilities=tuple(name for name in source.capabilities if name == "queue"),
    )


def answered_target(target: Target) -> Target:
    """The target as it is: what our attach says."""
    return Target(
        address=target.address,
        durable=0,
        expiry_policy="link-detach",
        capabilities=tuple(name for name in target.capabilities if name == "queue"),
    )
