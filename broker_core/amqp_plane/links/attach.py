"""An attach: read immediately, carried out in the commit, answered when it is durable.

A detached link is attached again (2.6.4, 2.6.13, 3.4.6) in one of two ways. An attach without an unsettled map on the same
session *reattaches* it, and its deliveries keep their ids. Every other attach *resumes* it: see `resumptions`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from ...amqp import Condition, Coordinator, Source, Target, events
from ...amqp.encoder import encode
from ...amqp.performatives import RCV_FIRST, SENDER, SND_SETTLED, Attach, DeliveryState, Error
from ...amqp.types import Symbol, Value
from ...errors import PenstockError, StorageError
from ...service.turn import Turn
from ..conditions import Refusal, as_error
from ..connections.peer import Peer
from ..nodes.addresses import route_to, source_of, target_of
from ..nodes.filters import not_granted
from ..transactions.coordinator import ANSWERED, Control
from ..transactions.registry import ConnectionTransactions
from .browser import BrowserLink
from .consumer import ConsumerLink
from .endpoint import LinkEnd, Resumable
from .incoming_link import AnonymousTerminus, IncomingLink
from .options import LinkOptions, link_options_of, wants_immediate
from .outgoing_link import OutgoingLink
from .termini import SourceTerminus, TargetTerminus, chosen

MAX_NAME = 1024  # characters of a link's name; generated names have a few hundred
HINT = Symbol("selector-hint")  # a property of our attach
HINT_FRAME = 16 << 10  # octets of the peer's frames below which a hint is left out, because the answer also repeats the selector
FRAME_RESERVE = 1024  # octets of an attach without its unsettled map; at most half of a frame
STOLEN = Error(condition=Condition.STOLEN, description="attached again")
DELAYED_DELIVERY, SHARED_SUBS = "DELAYED_DELIVERY", "SHARED-SUBS"


MakeEndpoint = Callable[[Peer, ConnectionTransactions, Any, Attach], LinkEnd]


def attach(peer: Peer, transactions: ConnectionTransactions, make: MakeEndpoint, event: events.Attached) -> None:
    """Read the attach. From now on, later frames of the peer find the link. `make` returns our end of it."""
    link, theirs, settings = event.link, event.attach, peer.context.settings
    if sum(len(session.remote_links) for session in peer.connection.remote_sessions.values()) > 2 * settings.amqp_max_links:
        # Refused links that the peer does not detach cost as much as others.
        peer.close(Error(condition=Condition.RESOURCE_LIMIT_EXCEEDED, description="too many links that are not detached"))
        return
    if len(link.name) > MAX_NAME:
        text = f"the name of a link has at most {MAX_NAME} characters, this one {len(link.name)}"
        peer.close(Error(condition=Condition.RESOURCE_LIMIT_EXCEEDED, description=text))
        return
    try:
        if len(peer.links) >= settings.amqp_max_links:
            raise Refusal(Condition.RESOURCE_LIMIT_EXCEEDED, f"{settings.amqp_max_links} links a connection are allowed")
        endpoint = make(peer, transactions, link, theirs)
    except (Refusal, PenstockError) as error:
        peer.log(f"link {link.name!r:.80} refused: {error}")
        peer.loop.after_all(partial(peer.refuse, link, as_error(error)))
        return
    older = peer.registry.claim(endpoint)
    if older is not None:
        older.peer.steal(older, STOLEN)
    endpoint.former = peer.registry.take(endpoint)
    peer.links[link] = endpoint
    peer.loop.in_commit(lambda turn: _carry_out(peer, turn, endpoint, theirs))


def endpoint_of(peer: Peer, transactions: ConnectionTransactions, link: Any, theirs: Attach) -> LinkEnd:
    """Return our end of a plain AMQP link. Raises Refusal, PenstockError."""
    if theirs.role == SENDER:
        source = theirs.source if isinstance(theirs.source, Source) else Source()
        if isinstance(theirs.target, Coordinator):
            return Control(peer, transactions, link, TargetTerminus(peer, "", None), source)
        target = target_of(peer, theirs.target)
        to = target or TargetTerminus(peer, "", None)
        to.immediate = wants_immediate(theirs.target)
        to.expiry = to.granted(theirs.target)
        if target is not None:
            return IncomingLink(peer, transactions, link, target)
        return AnonymousTerminus(peer, transactions, link, to, partial(route_to, peer), source)
    terminus = source_of(peer, theirs)
    default = theirs.source.default_outcome if isinstance(theirs.source, Source) else None
    terminus.expiry = terminus.granted(theirs.source)
    terminus.options = LinkOptions() if terminus.browse else link_options_of(theirs)  # a browser consumes nothing
    presettled = theirs.snd_settle_mode == SND_SETTLED
    if terminus.browse:
        return BrowserLink(peer, transactions, link, terminus, presettled=presettled)
    return ConsumerLink(peer, transactions, link, terminus, default, presettled=presettled)


def _carry_out(peer: Peer, turn: Turn, endpoint: LinkEnd, theirs: Attach) -> None:
    link, terminus, former = endpoint.link, endpoint.terminus, endpoint.former
    endpoint.former = None
    if former is not None and (endpoint.ended or former.ended or not _is_same(turn, former, endpoint)):
        peer.registry.end(turn, former)
        former = None
    if endpoint.ended:
        return
    if isinstance(endpoint, OutgoingLink):
        endpoint.incomplete = theirs.incomplete_unsettled  # whether or not there are deliveries to resume
    try:
        if former is None:
            terminus.open(turn)
            endpoint.queue = terminus.queue
            if isinstance(endpoint, OutgoingLink):
                endpoint.begin(turn)
        else:
            assert isinstance(endpoint, Resumable)  # it has the type of the former link
            _resume(turn, former, endpoint, theirs)
    except StorageError:
        raise
    except (Refusal, PenstockError) as error:
        peer.log(f"link {link.name!r:.80} refused: {error}")
        peer.forget(endpoint)
        endpoint.ended = True
        endpoint.terminus.close(turn, closed=False)
        peer.loop.behind_all(turn, partial(peer.refuse, link, as_error(error)))
        return
    endpoint.open(turn, partial(_open, peer, endpoint, theirs))
    if former is not None:
        peer.loop.behind_all(turn, former.forget_deliveries)


def _open(peer: Peer, endpoint: LinkEnd, theirs: Attach, turn: Turn) -> None:
    endpoint.opened = True
    peer.loop.behind_all(turn, lambda: _answer(peer, endpoint, theirs))


def _is_same(turn: Turn, former: Resumable, endpoint: LinkEnd) -> bool:
    return former.is_there(turn) and type(former) is type(endpoint) and former.terminus.is_same(endpoint.terminus)


def _answer(peer: Peer, endpoint: LinkEnd, theirs: Attach) -> None:
    link, terminus = endpoint.link, endpoint.terminus
    if not peer.awaits_attach(link):
        return
    source, target = theirs.source, theirs.target
    max_message_size: int | None = None
    properties: dict[str, Value] = {}
    if isinstance(endpoint, IncomingLink):
        if isinstance(target, Target):
            target = endpoint.terminus.answer(target)
        elif isinstance(endpoint, Control):
            target = ANSWERED
        offered, max_message_size = DELAYED_DELIVERY, endpoint.max_message_size
    else:
        assert isinstance(terminus, SourceTerminus)
        asked = source if isinstance(source, Source) else Source()
        source = terminus.answer(asked)
        if refused := not_granted(asked, source):
            peer.log(
                f"link {link.name!r:.80}: receives all messages, because these filters are not granted: {', '.join(refused)}"
            )
        offered, properties = SHARED_SUBS, {**terminus.properties(theirs), **_hint(peer, terminus)}
    unsettled, incomplete = _unsettled_map(endpoint, theirs)
    settles_first = isinstance(endpoint, IncomingLink) and peer.settles_first
    peer.say(
        link,
        lambda: link.attach(
            source=source,
            target=target,
            snd_settle_mode=endpoint.snd_settle_mode,
            rcv_settle_mode=RCV_FIRST if settles_first else None,
            unsettled=unsettled,
            incomplete_unsettled=incomplete,
            max_message_size=max_message_size,
            offered_capabilities=chosen(theirs.desired_capabilities, offered),
            properties=properties or None,
        ),
    )
    if isinstance(endpoint, IncomingLink):
        endpoint.renew()
    elif isinstance(endpoint, OutgoingLink):
        peer.loop.has_capacity(endpoint)


def _hint(peer: Peer, terminus: SourceTerminus) -> dict[str, Value]:
    selector = terminus.asked.selector
    if selector is None or peer.connection.remote_max_frame_size < HINT_FRAME:
        return {}
    hints = peer.context.broker.matching.hints(terminus.queue, selector)
    return {HINT: "; ".join(hints)} if hints else {}


def _resume(turn: Turn, former: Resumable, endpoint: Resumable, theirs: Attach) -> None:
    """Let `endpoint` continue in place of the detached link `former`."""
    again = theirs.unsettled is None and former.session is endpoint.session and not former.stolen
    former.terminus.peer, former.terminus.expiry = endpoint.peer, endpoint.terminus.expiry
    endpoint.terminus, endpoint.queue = former.terminus, former.queue
    former.ended = True
    former.peer.detached.pop(former.link, None)
    if again:
        former.successor, endpoint.attached_again = endpoint, True
        endpoint.link.adopt(former.link)
        endpoint.go_on(turn, former)
    else:
        former.detached = False  # nothing more is sent on its session
        endpoint.resume(turn, former, theirs)
        former.session.forget(former.link)


def _unsettled_map(endpoint: LinkEnd, theirs: Attach) -> tuple[dict[bytes, DeliveryState | None] | None, bool]:
    """Return the unsettled map of our attach, and whether it is incomplete."""
    known = {} if endpoint.attached_again else endpoint.known_unsettled(theirs)
    if not known:
        return None, False
    unsettled: dict[bytes, DeliveryState | None] = {}
    room = endpoint.session.connection.remote_max_frame_size
    room -= min(FRAME_RESERVE, room // 2)
    for tag, state in known.items():
        room -= len(encode(tag)) + len(encode(state))
        if room < 0:
            endpoint.incomplete = True
            endpoint.name_only(unsettled, known)
            break
        unsettled[tag] = state
    return unsettled, room < 0
