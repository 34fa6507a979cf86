"""Dispositions: what those of the peer change of a session's unsettled deliveries, and the encoding of ours.

Only what a disposition changes is carried out and reported: an outcome is the last word. Repeated, or where nothing is unsettled,
it costs a search. *Received* changes nothing: a receiver reports its progress by it, so the last delivery of its range is reported.

Ours are encoded by templates: from one to the next only their delivery ids change. As with input (fastpath.py), a template is
learnt from the plain encoder, so that no second encoder has to be right: a disposition with two conspicuous ids is encoded, and
cut where they are.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from . import events, serial
from .errors import Condition, FieldError, RemoteProtocolError, Scope
from .frames import encode_frame
from .performatives import RECEIVER, TERMINAL, Accepted, Disposition, Received, Released, TransactionalState, in_short
from .transactions import is_same

if TYPE_CHECKING:
    from .deliveries import Delivery, Unsettled
    from .performatives import DeliveryState
    from .sessions import Session


def take(session: Session, disposition: Disposition) -> list[events.Event]:
    """Handle one disposition. Raises the session's error for an invalid range."""
    first = disposition.first
    last = first if disposition.last is None else disposition.last
    if serial.difference(last, first) < 0:
        raise FieldError(f"a disposition from {first} to {disposition.last}", Scope.SESSION)
    if session.outgoing.exhausted or session.incoming.exhausted:
        why = "outcomes in a transaction were changed again and again"
        raise RemoteProtocolError(Condition.RESOURCE_LIMIT_EXCEEDED, why, Scope.SESSION)
    return [apply(session, disposition, [(first, last)])]


def named(session: Session, role: bool) -> tuple[Unsettled, int]:
    """Return the deliveries that dispositions of an issuer in this role name, and the id of the newest."""
    if role == RECEIVER:
        return session.outgoing, serial.add(session.next_delivery_id, -1)
    return session.incoming, session.last_delivery_id or 0


def apply(session: Session, disposition: Disposition, ranges: Sequence[tuple[int, int]]) -> events.Disposed:
    """Apply a disposition to each of these ranges in turn, instead of its own."""
    issuer_receives, state, settled = disposition.role == RECEIVER, disposition.state, disposition.settled
    unsettled, newest = named(session, disposition.role)
    coordinated = session.connection.coordinated
    found: list[Delivery] = []
    if settled:
        for first, last in ranges:
            found += unsettled.take(first, last, newest)
        session.count_outgoing()
        if state is not None:
            _set_state(session, found, state, issuer_receives)
        for delivery in found:
            delivery.remote_settled = True
            if delivery.link.unsettled.get(delivery.tag) is delivery:
                del delivery.link.unsettled[delivery.tag]
    elif isinstance(state, TERMINAL):
        for first, last in ranges:
            undecided = unsettled.decide(first, last, newest)
            _set_state(session, undecided, state, issuer_receives)
            found += undecided
    elif isinstance(state, TransactionalState):
        for first, last in ranges:
            found += unsettled.place(first, last, newest, state, coordinated.period)
        undecided = [delivery for delivery in found if not isinstance(delivery.remote_state, TERMINAL)]
        _set_state(session, undecided if issuer_receives else found, state, issuer_receives)
    elif isinstance(state, Received) and issuer_receives:  # progress, not an outcome: only how far it has come is reported
        found = [furthest for _, last in ranges if (furthest := unsettled.get(last)) is not None]
    if issuer_receives and isinstance(state, TransactionalState):
        beyond = any(serial.difference(last, session.next_delivery_id) >= 0 for _, last in ranges)
        coordinated.name(state, len(found) + (session.lost.take(ranges) or beyond))
    return events.Disposed(session, found, state, settled, ranges)


def _set_state(session: Session, deliveries: list[Delivery], state: DeliveryState, issuer_receives: bool) -> None:
    known = in_short(state)
    for delivery in deliveries:
        if issuer_receives or _may_set_state(session, delivery, state):
            delivery.remote_state = known


def _may_set_state(session: Session, delivery: Delivery, state: DeliveryState) -> bool:
    """Return True if the sender may set this state: a transaction that it names stays, and so does an outcome (4.4.1)."""
    known = delivery.remote_state
    if not is_same(known, state):
        session.connection.coordinated.name(state)
    return not isinstance(known, (*TERMINAL, TransactionalState))


# --- ours

_ALIKE = (None, Accepted, Released)  # states without a field: all of one kind have the same octets
_KEPT = 1024  # templates kept; a channel has a handful

_ONE, _SEVERAL = struct.Struct(">BI"), struct.Struct(">BIBI")
_UINT = 0x70
_FIRST, _LAST = 0xF1F2F3F4, 0xF5F6F7F8


def frames(
    channel: int,
    ranges: Iterable[tuple[int, int]],
    *,
    role: bool,
    state: DeliveryState | None,
    settled: bool,
    batchable: bool,
) -> list[bytes] | None:
    """Return a disposition frame for each range of delivery ids, first and last included; None for a state with fields."""
    kind: Any = None if state is None else type(state)
    if kind not in _ALIKE:
        return None
    found = []
    for first, last in ranges:
        head, tail = _around(channel, role, kind, settled, batchable, first == last)
        found.append(head + _ids(first, last) + tail)
    return found


@lru_cache(_KEPT)
def _around(
    channel: int, role: bool, kind: type[Accepted | Released] | None, settled: bool, batchable: bool, one: bool
) -> tuple[bytes, bytes]:
    """Return the octets of a disposition's frame before and after its delivery ids."""
    disposition = Disposition(
        role=role,
        first=_FIRST,
        last=None if one else _LAST,
        settled=settled,
        state=None if kind is None else kind(),
        batchable=batchable,
    )
    head, tail = encode_frame(channel, disposition.encode()).split(_ids(_FIRST, _FIRST if one else _LAST))
    return head, tail


def _ids(first: int, last: int) -> bytes:
    return _ONE.pack(_UINT, first) if first == last else _SEVERAL.pack(_UINT, first, _UINT, last)
