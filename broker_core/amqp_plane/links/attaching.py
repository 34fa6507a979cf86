"""An attach, from its frame to its answer: read at once, carried out in the pass, answered when it is durable.

The link exists from its frame on: later frames of the peer find it, and it takes its name from the link that had it.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any

from ...amqp import Condition, Coordinator, Source, Target
from ...amqp.performatives import SENDER, SND_SETTLED, Error
from ...amqp.types import Symbol
from ...errors import PenstockError, StorageError
from ..nodes.addresses import route_to, source_of, target_of
from ..nodes.filters import not_granted
from ..transactions.coordinator import ANSWERED, Control
from . import resuming
from .browsing import Browsing
from .conditions import Refusal, as_error
from .consuming import Consuming
from .incoming import Incoming, Relay
from .options import LinkOptions, link_options_of, wants_immediate
from .outgoing import Outgoing
from .termini import SourceTerminus, TargetTerminus

if TYPE_CHECKING:
    from ...amqp import events
    from ...amqp.performatives import Attach
    from ...amqp.types import Value
    from ...service.turn import Turn
    from ..ports import Endpoint, Kept, LinkPeer

MAX_NAME = 1024  # characters of a link's name, which is kept as long as the link; clients make up a few hundred
HINT = Symbol("selector-hint")  # property of our attach
HINT_FRAME = 16 << 10  # octets of the peer's frames below which a hint is left out: the answer repeats the selector, too
DELAYED_DELIVERY, SHARED_SUBS = "DELAYED_DELIVERY", "SHARED-SUBS"


def attach(peer: LinkPeer, event: events.Attached) -> None:
    """Read the peer's attach. A refusal waits for the effects before it, like any answer."""
    link, theirs, limits = event.link, event.attach, peer.host.limits
    if sum(len(session.remote_links) for session in peer.connection.remote_sessions.values()) > 2 * limits.links:
        # Links that were refused and that it does not detach: they cost as much as others.
        peer.close(Error(condition=Condition.RESOURCE_LIMIT_EXCEEDED, description="too many links that are not detached"))
        return
    if len(link.name) > MAX_NAME:
        text = f"the name of a link has at most {MAX_NAME} characters, this one {len(link.name)}"
        peer.close(Error(condition=Condition.RESOURCE_LIMIT_EXCEEDED, description=text))
        return
    try:
        if len(peer.links) >= limits.links:
            raise Refusal(Condition.RESOURCE_LIMIT_EXCEEDED, f"{limits.links} links a connection are allowed")
        endpoint = _endpoint(peer, link, theirs)
    except (Refusal, PenstockError) as error:
        peer.log(f"link {link.name!r:.80} refused: {error}")
        told = as_error(error)
        peer.loop.after_all(lambda: peer.refuse(link, told))
        return
    peer.host.containers.attach(endpoint)
    endpoint.kept = peer.host.detached.take(endpoint)
    peer.links[link] = endpoint
    peer.loop.in_pass(lambda turn: _carry_out(peer, turn, endpoint, theirs))


def _endpoint(peer: LinkPeer, link: Any, theirs: Attach) -> Endpoint:
    if theirs.role == SENDER:
        source = theirs.source if isinstance(theirs.source, Source) else Source()
        if isinstance(theirs.target, Coordinator):
            return Control(peer, link, TargetTerminus(peer, "", None), source)
        target = target_of(peer, theirs.target)
        to = target or TargetTerminus(peer, "", None)
        to.immediate = wants_immediate(theirs.target)
        to.expiry = to.granted(theirs.target)
        if target is not None:
            return Incoming(peer, link, target)
        return Relay(peer, link, to, partial(route_to, peer), source)
    terminus = source_of(peer, theirs)
    default = theirs.source.default_outcome if isinstance(theirs.source, Source) else None
    terminus.expiry = terminus.granted(theirs.source)
    terminus.options = LinkOptions() if terminus.browse else link_options_of(theirs)  # who only looks consumes nothing
    presettled = theirs.snd_settle_mode == SND_SETTLED
    if terminus.browse:
        return Browsing(peer, link, terminus, presettled=presettled)
    return Consuming(peer, link, terminus, default, presettled=presettled)


def _carry_out(peer: LinkPeer, turn: Turn, endpoint: Endpoint, theirs: Attach) -> None:
    """Carry out the attach in its pass: a consumer exists from here on; the answer waits until it is durable."""
    link, terminus, kept = endpoint.link, endpoint.terminus, endpoint.kept
    endpoint.kept = None
    if kept is not None and (endpoint.ended or kept.ended or not _is_same(turn, kept, endpoint)):
        peer.host.detached.end(turn, kept)
        kept = None
    if endpoint.ended:
        return
    if isinstance(endpoint, Outgoing):
        endpoint.incomplete = theirs.incomplete_unsettled  # whether or not there is something to resume
    try:
        if kept is None:
            terminus.open(turn)
            endpoint.queue = terminus.queue
            if isinstance(endpoint, Outgoing):
                endpoint.begin(turn)
        else:
            assert isinstance(endpoint, (Incoming, Consuming))  # as the one that was kept
            resuming.resume(turn, kept, endpoint, theirs)
    except StorageError:
        raise
    except (Refusal, PenstockError) as error:
        peer.log(f"link {link.name!r:.80} refused: {error}")
        told = as_error(error)
        peer.forget(endpoint)
        endpoint.ended = True
        endpoint.terminus.close(turn, closed=False)
        peer.loop.behind_all(turn, lambda: peer.refuse(link, told))
        return
    endpoint.opened = True
    peer.loop.behind_all(turn, lambda: _answer(peer, endpoint, theirs))
    if kept is not None:
        peer.loop.behind_all(turn, partial(_forget_deliveries, kept))


def _is_same(turn: Turn, kept: Kept, endpoint: Endpoint) -> bool:
    """Return True if an attach means the terminus of the detached link of its name, and that terminus is still there."""
    if isinstance(kept, Consuming) and not turn.view.has_holder(kept.queue, kept.holder):
        return False  # its queue was deleted, and may have been declared again
    return type(kept) is type(endpoint) and kept.terminus.is_same(endpoint.terminus)


def _answer(peer: LinkPeer, endpoint: Endpoint, theirs: Attach) -> None:
    link, terminus = endpoint.link, endpoint.terminus
    if not peer.awaits_attach(link):
        return
    if isinstance(endpoint, Incoming):
        target = theirs.target
        if isinstance(terminus, TargetTerminus) and isinstance(target, Target):
            target = terminus.answer(target)
        elif isinstance(endpoint, Control):
            target = ANSWERED
        offered = _offered(theirs, DELAYED_DELIVERY)
        unsettled, incomplete = resuming.unsettled_map(endpoint, theirs)
        peer.say(
            link,
            lambda: link.attach(
                source=theirs.source,
                target=target,
                unsettled=unsettled,
                incomplete_unsettled=incomplete,
                max_message_size=peer.host.limits.message_bytes,
                offered_capabilities=offered,
            ),
        )
        endpoint.begin()
    else:
        assert isinstance(terminus, SourceTerminus)
        asked = theirs.source if isinstance(theirs.source, Source) else Source()
        source = terminus.answer(asked)
        if refused := not_granted(asked, source):
            peer.log(f"link {link.name!r:.80}: not granted, so it receives what they leave out: filters {', '.join(refused)}")
        offered, properties = _offered(theirs, SHARED_SUBS), {**terminus.options.answered(theirs), **_hint(peer, terminus)}
        unsettled, incomplete = resuming.unsettled_map(endpoint, theirs)
        peer.say(
            link,
            lambda: link.attach(
                source=source,
                target=theirs.target,
                unsettled=unsettled,
                incomplete_unsettled=incomplete,
                offered_capabilities=offered,
                properties=properties or None,
            ),
        )
        peer.loop.has_capacity(endpoint)


def _hint(peer: LinkPeer, terminus: SourceTerminus) -> dict[str, Value]:
    """Return the property of our attach that names fields which the selector may mean."""
    selector = terminus.asked_selector
    if selector is None or peer.connection.remote_max_frame_size < HINT_FRAME:
        return {}
    hints = peer.host.hints(terminus.queue, selector)
    return {HINT: "; ".join(hints)} if hints else {}


def _offered(theirs: Attach, *known: str) -> tuple[str, ...]:
    """Return the desired capabilities that we offer."""
    return tuple(name for name in theirs.desired_capabilities if name in known)


def end(turn: Turn, endpoint: Endpoint) -> None:
    """End a link in the pass of its end: what it held goes back, and its terminus is closed."""
    endpoint.loop.behind_all(turn, partial(_forget_deliveries, endpoint))
    if endpoint.ended:
        return
    endpoint.end(turn)
    endpoint.detach_error = endpoint.terminus.close(turn, closed=endpoint.closed)


def _forget_deliveries(endpoint: Endpoint) -> None:
    """Forget what a link held, though its peer may never say that it is detached. Others may have as much."""
    endpoint.link.forget_all()
    endpoint.peer.capacity.gained(endpoint.link.session)
