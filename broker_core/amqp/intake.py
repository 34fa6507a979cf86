"""Input of a session: dispositions, runs, and frames with an invalid field.

A disposition is applied and reported only if it changes a delivery: an outcome is final. With *received*, a receiver reports
progress, and only the last delivery of its range is reported.

A block of a run ends where the session's window is renewed, so the flows have the same place as without runs.

A frame with an invalid field ends the links that it names (2.6.5), or else the session. Its valid fields count: a transfer uses
the session's window, a flow sets it, a detach frees its handle, and a state names its transaction. A disposition ends the links
of the unsettled deliveries in its range.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from . import events, serial, states
from .deliveries import DeliveryBlock
from .errors import Condition, FieldError, RemoteProtocolError, Scope
from .fastpath import Dispositions, TransferRun
from .frames import Frame
from .performatives import (
    RECEIVER,
    SENDER,
    TERMINAL,
    Attach,
    Detach,
    Disposition,
    Flow,
    Received,
    TransactionalState,
    Transfer,
    in_short,
)
from .receivers import Receiver
from .transactions import is_same
from .types import Described, Symbol, ULong

if TYPE_CHECKING:
    from .composites import Invalid
    from .deliveries import Delivery, Unsettled
    from .performatives import DeliveryState
    from .sessions import Session


# --- dispositions


def take_disposition(session: Session, disposition: Disposition) -> list[events.Event]:
    first = disposition.first
    last = first if disposition.last is None else disposition.last
    _check_range(first, last)
    if session.outgoing.exhausted or session.incoming.exhausted:
        why = "outcomes in a transaction were changed again and again"
        raise RemoteProtocolError(Condition.RESOURCE_LIMIT_EXCEEDED, why, Scope.SESSION)
    return [apply_disposition(session, disposition, [(first, last)])]


def _check_range(first: int, last: int) -> None:
    if serial.difference(last, first) < 0:
        raise FieldError(f"a disposition from {first} to {last}", Scope.SESSION)


def named(session: Session, role: bool) -> tuple[Unsettled, int]:
    if role == RECEIVER:
        return session.outgoing, serial.add(session.next_delivery_id, -1)
    return session.incoming, session.last_delivery_id or 0


def apply_disposition(session: Session, disposition: Disposition, ranges: Sequence[tuple[int, int]]) -> events.Disposed:
    issuer_receives, state, settled = disposition.role == RECEIVER, disposition.state, disposition.settled
    unsettled, newest = named(session, disposition.role)
    coordinated = session.connection.coordinated
    changed: list[Delivery] = []
    if settled:
        for first, last in ranges:
            changed += unsettled.take(first, last, newest)
        session.count_outgoing()
        if state is not None:
            _set_state(session, changed, state, issuer_receives)
        for delivery in changed:
            delivery.remote_settled = True
            if delivery.link.unsettled.get(delivery.tag) is delivery:
                del delivery.link.unsettled[delivery.tag]
    elif isinstance(state, TERMINAL):
        for first, last in ranges:
            undecided = unsettled.decide(first, last, newest)
            _set_state(session, undecided, state, issuer_receives)
            changed += undecided
    elif isinstance(state, TransactionalState):
        for first, last in ranges:
            changed += unsettled.place(first, last, newest, state, coordinated.period)
        undecided = [delivery for delivery in changed if not isinstance(delivery.remote_state, TERMINAL)]
        _set_state(session, undecided if issuer_receives else changed, state, issuer_receives)
    elif isinstance(state, Received) and issuer_receives:  # progress
        changed = [furthest for _, last in ranges if (furthest := unsettled.get(last)) is not None]
    if issuer_receives and isinstance(state, TransactionalState):
        beyond = any(serial.difference(last, session.next_delivery_id) >= 0 for _, last in ranges)
        coordinated.name(state, len(changed) + (session.lost.take(ranges) or beyond))
    return events.Disposed(session, changed, state, settled, ranges)


def _set_state(session: Session, deliveries: list[Delivery], state: DeliveryState, issuer_receives: bool) -> None:
    """Set the issuer's state. A transaction that a sender has named stays, and so does an outcome (4.4.1)."""
    known = in_short(state)
    for delivery in deliveries:
        if not issuer_receives and not is_same(delivery.remote_state, state):
            session.connection.coordinated.name(state)
        if issuer_receives or not isinstance(delivery.remote_state, (*TERMINAL, TransactionalState)):
            delivery.remote_state = known


# --- runs


def take_run(session: Session, run: TransferRun) -> list[events.Event]:
    """Return the events of the run's frames, except that more deliveries share an event."""
    reported: list[events.Event] = []
    begin, count = 0, len(run.ids)
    while begin < count:
        states.advance(states.SESSION, session.state, "r:frame")
        if session.discards:
            session.connection.coordinated.name(run.transfer.state, count - begin)
            return reported
        link = session.remote_links.get(run.transfer.handle)
        end = begin + min(count - begin, session.free_block)
        deliveries = link.on_run(run, begin, end) if end > begin and isinstance(link, Receiver) else None
        if link is None or deliveries is None:
            rest = TransferRun(run.channel, run.transfer, run.ids[begin:], run.tags[begin:], run.payloads[begin:])
            return reported + _plainly(session, rest.frames())
        session.connection.coordinated.name(run.transfer.state, end - begin)
        session.count_received(end - begin)
        if isinstance(deliveries, DeliveryBlock):
            reported.append(events.Arrived(link, deliveries))
        else:
            reported.append(events.Delivered(link, deliveries))
        session.renew_window()
        begin = end
    return reported


def take_dispositions(session: Session, run: Dispositions) -> list[events.Event]:
    states.advance(states.SESSION, session.state, "r:frame")
    if session.discards:
        session.connection.coordinated.name(run.disposition.state, len(run.ranges))
        return []
    exhausted = session.outgoing.exhausted or session.incoming.exhausted
    if exhausted or any(serial.difference(last, first) < 0 for first, last in run.ranges):
        return _plainly(session, run.frames())
    return [apply_disposition(session, run.disposition, run.ranges)]


def _plainly(session: Session, frames: list[Frame]) -> list[events.Event]:
    reported: list[events.Event] = []
    for frame in frames:
        assert frame.performative is not None
        reported += session.connection.guarded(session, frame.performative, frame.payload)
    return reported


# --- frames with an invalid field

_FLOW_OF_SESSION = ("next_incoming_id", "incoming_window", "next_outgoing_id", "outgoing_window")
# Without these fields the link of a frame is unknown, or its session cannot continue.
_NEEDED = {
    Attach: {"name", "handle", "role", "initial_delivery_count"},
    Detach: {"handle"},
    Disposition: {"role", "first", "last"},
    Flow: {"handle", *_FLOW_OF_SESSION},
    Transfer: {"handle"},
}


def take_invalid(session: Session, frame: Invalid) -> list[events.Event]:
    needed, fields = _NEEDED.get(frame.cls), frame.fields
    if needed is None or not fields or needed & frame.wrong:
        raise FieldError(frame.description, Scope.SESSION)
    if frame.cls is Attach:
        return _attach(session, frame)
    reported: list[events.Event] = []
    if frame.cls is Disposition:
        first, last = fields["first"], fields.get("last", fields["first"])
        _check_range(first, last)
        unsettled, newest = named(session, fields["role"])
        links = unsettled.links(first, last, newest)
    else:
        links = [session.link(fields["handle"])] if "handle" in fields else []
    if frame.cls is Transfer:
        session.count_received(1)
        session.renew_window()
    if frame.cls is Flow:
        if not links:
            raise FieldError(frame.description, Scope.SESSION)
        reported = session.on_flow(Flow(**{name: fields[name] for name in _FLOW_OF_SESSION if name in fields}))
    error = FieldError(frame.description, Scope.LINK)
    reported += [link.violated(error) for link in links if session.is_usable(link)]
    if frame.cls is Detach:
        reported += session.on_detach(Detach(handle=fields["handle"], closed=fields.get("closed", False)))
    return reported


def _attach(session: Session, frame: Invalid) -> list[events.Event]:
    fields = frame.fields
    name, handle, role = fields["name"], fields["handle"], fields["role"]
    if not session.may_send:  # our begin is missing
        raise FieldError(frame.description, Scope.SESSION)
    count = fields.get("initial_delivery_count", 0) if role == SENDER else None
    session.on_attach(Attach(name=name, handle=handle, role=role, initial_delivery_count=count), is_valid=False)
    return [session.remote_links[handle].violated(FieldError(frame.description, Scope.LINK))]


def state_of(frame: Invalid) -> object:
    """Return the state of a frame that names a transaction."""
    if "state" in frame.fields or "state" not in frame.wrong:
        return frame.fields.get("state")
    index = next(number for number, field in enumerate(frame.cls.FIELDS) if field.attribute == "state")
    state = frame.values[index] if isinstance(frame.values, list) and index < len(frame.values) else None
    if not isinstance(state, Described) or not isinstance(state.value, list) or not state.value:
        return None
    named = (ULong(TransactionalState.CODE), Symbol(TransactionalState.SYMBOL))
    txn_id = state.value[0]
    if any(type(state.descriptor) is type(known) and state.descriptor == known for known in named) and type(txn_id) is bytes:
        return TransactionalState(txn_id=txn_id)
    return None
