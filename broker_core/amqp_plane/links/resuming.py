"""A detached link that is attached again (2.6.4, 2.6.13, 3.4.6): reattached, or resumed by both unsettled maps.

An attach without an unsettled map on the session of the deliveries *reattaches* the link: its deliveries keep their ids. Every
other attach *resumes* it: each delivery that we hold is compared with the receiver's map (`amqp.resume`). A delivery without an
outcome there is sent again under its tag, from where the receiver has it. One with an outcome is settled by it, and the receiver
is told when that is durable. The message of a delivery that the receiver does not know goes back to its queue as lost with its
link, and comes as a new delivery. Deliveries that an incomplete map does not name stay as they are. For received deliveries our
map tells the outcome, so that nothing is sent twice.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ...amqp.encoder import encode

if TYPE_CHECKING:
    from ...amqp.performatives import Attach, DeliveryState
    from ...service.turn import Turn
    from ..ports import Endpoint, Kept

    Unsettled = Mapping[bytes, DeliveryState | None]

FRAME_RESERVE = 1024  # octets of an attach beside its unsettled map; at most half of a frame


def resume(turn: Turn, kept: Kept, endpoint: Kept, theirs: Attach) -> None:
    """Let `endpoint` go on where the detached link `kept` is, in the pass of the attach."""
    again = theirs.unsettled is None and kept.link.session is endpoint.link.session and not kept.stolen
    kept.terminus.peer, kept.terminus.expiry = endpoint.peer, endpoint.terminus.expiry
    endpoint.terminus, endpoint.queue = kept.terminus, kept.queue
    kept.ended = True
    kept.peer.detached.pop(kept.link, None)
    if again:
        kept.successor, endpoint.attached_again = endpoint, True
        endpoint.link.adopt(kept.link)
        endpoint.go_on(turn, kept)  # type: ignore[arg-type]
    else:
        kept.detached = False  # nothing more is said on its session
        endpoint.resume(turn, kept, theirs)  # type: ignore[arg-type]
        kept.link.session.forget(kept.link)


def unsettled_map(endpoint: Endpoint, theirs: Attach) -> tuple[dict[bytes, Any] | None, bool]:
    """Return the unsettled map of our attach, and whether it is incomplete. Called when everything before the attach is told."""
    known = {} if endpoint.attached_again else endpoint.known_unsettled(theirs)
    if not known:
        return None, False
    found: dict[bytes, Any] = {}
    room = endpoint.link.session.max_frame_size
    room -= min(FRAME_RESERVE, room // 2)
    for tag, state in known.items():
        room -= len(encode(tag)) + len(encode(state))
        if room < 0:
            endpoint.incomplete = True
            endpoint.name_only(found, known)
            break
        found[tag] = state
    return found, room < 0
