"""Session endpoints (2.5): the two windows, delivery ids, dispositions, and the handles of the links.

Transfers of detached links also count, so that the windows of both ends agree. The window limits frames; credit limits messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any

from . import disposing, events, intake, serial, states
from .composites import Composite, Invalid
from .deliveries import Delivery, LostDeliveries, Unsettled
from .errors import Condition, FieldError, LocalProtocolError, RemoteProtocolError, Scope
from .links import Handles, Link, as_error, not_allowed
from .outbox import Outbox
from .performatives import (
    RCV_SECOND,
    RECEIVER,
    SENDER,
    TERMINAL,
    Attach,
    Begin,
    DeliveryState,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Transfer,
)
from .receivers import Receiver
from .senders import Sender
from .states import LinkState, SessionState
from .transactions import is_same

if TYPE_CHECKING:
    from .connection import Connection

_DISCARDS = frozenset({SessionState.DISCARDING, SessionState.VIOLATED, SessionState.VIOLATED_UNANSWERED})
_IN_ERROR = frozenset({LinkState.ERRORED, LinkState.VIOLATED, LinkState.VIOLATED_UNANSWERED})


class Session:
    """A session. `incoming` and `outgoing` hold the unsettled deliveries by id."""

    def __init__(self, connection: Connection, first_outgoing_id: int = 0) -> None:
        self.connection = connection
        self.settings = connection.settings
        self.state = SessionState.UNMAPPED
        self.local_channel = 0
        self.remote_channel: int | None = None
        self.remote_begin: Begin | None = None
        self.handles = Handles()
        self.links, self.remote_links = self.handles.links, self.handles.remote_links
        self.incoming = Unsettled()
        self.outgoing = Unsettled()
        self.next_delivery_id = first_outgoing_id
        self.initial_outgoing_id = self.next_outgoing_id = first_outgoing_id
        self.next_incoming_id: int | None = None
        self.incoming_window = self.settings.incoming_window
        self.unannounced = 0  # frames of a renewed window, unknown to the peer
        self.remote_incoming_window = 0
        self.remote_outgoing_window = 0
        self.last_delivery_id: int | None = None
        self.lost = LostDeliveries()  # of `outgoing`
        self._counted = 0
        self.outbox = Outbox(self)
        self._violation: RemoteProtocolError | None = None  # our end has to report it

    def __repr__(self) -> str:
        return f"Session({self.local_channel}, {self.state.value})"

    @property
    def blocked(self) -> bool:
        return bool(self.outbox)

    # --- our side

    def begin(self) -> None:
        state = states.advance(states.SESSION, self.state, "s:begin")
        begin = Begin(
            remote_channel=self.remote_channel,
            next_outgoing_id=self.next_outgoing_id,
            incoming_window=self.incoming_window,
            outgoing_window=self.settings.outgoing_window,
            handle_max=self.settings.handle_max,
        )
        self.local_channel = self.connection.take_channel(self)
        try:
            self.connection.send(self.local_channel, begin)
        except LocalProtocolError:
            self.connection.release_channel(self)
            raise
        self.state = state
        if self._violation is not None and self.settings.answers_violations:
            self.answer_violation()

    def end(self, error: Error | None = None) -> None:
        """After an end with an error, later input from the peer is discarded (2.5.4)."""
        state = states.advance(states.SESSION, self.state, "s:end" if error is None else "s:error")
        self.connection.send(self.local_channel, End(error=error))
        self._violation = None
        self._leave(state)

    def sender(self, name: str) -> Sender:
        return Sender(self, name)

    def receiver(self, name: str) -> Receiver:
        return Receiver(self, name)

    def dispose(self, deliveries: Sequence[Delivery], state: DeliveryState | None = None, *, settled: bool = True) -> None:
        """Send the state of deliveries of one direction. Raises LocalProtocolError for a settled delivery, or for one that the
        sender has to settle first (receiver-settle-mode second).
        """
        role = deliveries[0].link.role if deliveries else RECEIVER
        for delivery in deliveries:
            if delivery.settled or delivery.link.role != role:
                raise LocalProtocolError(f"{delivery!r} is settled already, or of the other direction")
            if settled and delivery.rcv_settle_mode == RCV_SECOND and role == RECEIVER:
                raise LocalProtocolError(f"{delivery!r} is the sender's to settle first")
        states.advance(states.SESSION, self.state, "s:frame")
        if not deliveries:
            return
        ranges = list(serial.ranges([delivery.id for delivery in deliveries]))
        frames = disposing.frames(self.local_channel, ranges, role=role, state=state, settled=settled)
        if frames is not None:
            self.connection.send_raw(frames)
        else:
            for first, last in ranges:
                alone = None if last == first else last
                self.send(Disposition(role=role, first=first, last=alone, settled=settled, state=state))
        if state is not None:
            for delivery in deliveries:
                delivery.state = state
        if settled:
            for delivery in deliveries:
                delivery.settled = True
            self.settle(deliveries, role)

    def dispose_ids(self, ranges: Sequence[tuple[int, int]], state: DeliveryState) -> None:
        """Settle received deliveries with an outcome without fields."""
        states.advance(states.SESSION, self.state, "s:frame")
        frames = disposing.frames(self.local_channel, ranges, role=RECEIVER, state=state, settled=True)
        if frames is None:
            raise LocalProtocolError(f"ranges cannot be settled with {state!r}")
        self.connection.send_raw(frames)
        for first, last in ranges if self.incoming else ():
            taken = self.incoming.take(first, last, self.last_delivery_id or 0)
            for delivery in taken:
                delivery.state, delivery.settled = state, True
            self.settle(taken, RECEIVER)

    def send_flow(self, *, echo: bool = False, **link: Any) -> None:
        self.send(
            Flow(
                next_incoming_id=self.next_incoming_id,
                incoming_window=self.incoming_window,
                next_outgoing_id=self.next_outgoing_id,
                outgoing_window=self.settings.outgoing_window,
                echo=echo,
                **link,
            )
        )

    # --- for the links

    def send(self, performative: Composite, payload: bytes = b"") -> None:
        states.advance(states.SESSION, self.state, "s:frame")
        self.connection.send(self.local_channel, performative, payload)

    def forget(self, link: Link) -> None:
        """Remove the deliveries of a link that is closed or in error, except from `link.unsettled`."""
        lost: list[int] = []
        for delivery in link.unsettled.values():
            mine = self.outgoing if link.role == SENDER else self.incoming
            if mine.get(delivery.id) is delivery:
                del mine[delivery.id]
                if link.role == SENDER and not isinstance(delivery.remote_state, TERMINAL):
                    lost.append(delivery.id)
        self.lost.add(lost)
        self.count_outgoing()

    def take_delivery_id(self, number: int) -> None:
        if not self.is_next_delivery_id(number):
            raise FieldError(f"delivery-id {number} after {self.last_delivery_id}", Scope.SESSION)
        self.last_delivery_id = number

    def is_next_delivery_id(self, number: int) -> bool:
        return self.last_delivery_id is None or serial.difference(number, self.last_delivery_id) > 0

    def count_outgoing(self) -> None:
        count = len(self.outgoing)
        self.connection.unsettled_sent += count - self._counted
        self._counted = count

    def settle(self, deliveries: Iterable[Delivery], role: bool) -> None:
        mine = self.outgoing if role == SENDER else self.incoming
        for delivery in deliveries:
            number, tag, unsettled = delivery.id, delivery.tag, delivery.link.unsettled
            if mine.get(number) is delivery:
                del mine[number]
            if unsettled.get(tag) is delivery:
                del unsettled[tag]
        self.count_outgoing()

    def _leave(self, state: SessionState) -> None:
        self.state = state
        self.outbox.clear()
        for link in self.handles.all_links:
            link.drop_unfinished()
        if state is SessionState.UNMAPPED:
            self.connection.release_channel(self)
            self.forget_all()
        elif state is SessionState.DISCARDING:  # frames for its links still come
            self._forget_deliveries()

    def forget_all(self) -> None:
        """Forget all links and deliveries. Each link keeps its own deliveries in `unsettled`."""
        self.outbox.clear()
        for link in self.handles.all_links:
            link.drop_unfinished()
        self.handles.clear()
        self._forget_deliveries()

    def _forget_deliveries(self) -> None:
        self.incoming, self.outgoing, self.lost = Unsettled(), Unsettled(), LostDeliveries()
        self.count_outgoing()

    # --- the peer's side

    def on_begin(self, begin: Begin, channel: int) -> events.Event:
        self.state = states.advance(states.SESSION, self.state, "r:begin")
        self.remote_channel, self.remote_begin = channel, begin
        self.next_incoming_id = begin.next_outgoing_id
        self.remote_incoming_window, self.remote_outgoing_window = begin.incoming_window, begin.outgoing_window
        return events.Begun(self, begin)

    def on_end(self, end: End | Invalid) -> list[events.Event]:
        """Return no event if our end had, or will have, an error."""
        reported: list[events.Event] = []
        if isinstance(end, End):
            reported = [] if self.discards else [events.Ended(self, end.error)]
        elif not self.discards:
            reported = [self.violated(FieldError(end.description, Scope.SESSION))]
        self._leave(states.advance(states.SESSION, self.state, "r:end"))
        return reported

    def violated(self, error: RemoteProtocolError) -> events.Event:
        self.state = states.advance(states.SESSION, self.state, "r:error")
        if self.state is SessionState.DISCARDING:  # our end was sent before
            self._leave(self.state)
        else:
            self._violation = error
            for link in self.handles.all_links:
                link.drop_unfinished()
            if self.settings.answers_violations and self.may_send:
                self.answer_violation()
        return events.Violated(error, self)

    def answer_violation(self) -> None:
        if self._violation is None or not self.connection.may_send:
            return
        error = as_error(self._violation)
        if not self.may_send:
            self._violation = None
            self.begin()
        self.end(error)

    @property
    def discards(self) -> bool:
        return self.state in _DISCARDS

    def on_frame(self, performative: Composite | Invalid, payload: bytes) -> list[events.Event]:
        states.advance(states.SESSION, self.state, "r:frame")
        if isinstance(performative, Transfer):
            self._count_in_transaction(performative)
        elif isinstance(performative, Invalid):
            self.connection.coordinated.name(intake.state_of(performative))
        if self.discards:
            if isinstance(performative, Disposition):
                self.connection.coordinated.name(performative.state)
            return []
        if isinstance(performative, Transfer):
            return self._on_transfer(performative, payload)
        if isinstance(performative, Disposition):
            return intake.take_disposition(self, performative)
        if isinstance(performative, Flow):
            return self.on_flow(performative)
        if isinstance(performative, Attach):
            return self.on_attach(performative)
        if isinstance(performative, Detach):
            return self.on_detach(performative)
        if isinstance(performative, Invalid):
            return intake.take_invalid(self, performative)
        raise not_allowed(f"{performative.SYMBOL} inside a session", Scope.CONNECTION)

    def link(self, handle: int) -> Link:
        link = self.remote_links.get(handle)
        if link is None:
            raise RemoteProtocolError(Condition.UNATTACHED_HANDLE, f"handle {handle} is not attached", Scope.SESSION)
        return link

    def is_usable(self, link: Link) -> bool:
        """Return False if input for the link is dropped: we have closed it, or will because of an error.

        A link that we have only detached receives until the peer's detach. Otherwise both ends would assume that the receiver has
        the transfers on their way.
        """
        if link.state is LinkState.ERRORED and not self.settings.errant_link_ends_session:
            return False
        if link.state is LinkState.VIOLATED or link.state is LinkState.VIOLATED_UNANSWERED:
            return False
        states.advance(states.LINK, link.state, "r:frame")
        return link.state is not LinkState.DETACH_SENT or not link.closing

    def count_received(self, count: int) -> None:
        """Count received transfers, even if they are dropped later. Raises amqp:session:window-violation."""
        if self.incoming_window - self.unannounced < count:
            raise RemoteProtocolError(Condition.WINDOW_VIOLATION, "a transfer beyond the incoming window", Scope.SESSION)
        assert self.next_incoming_id is not None
        self.incoming_window -= count
        self.next_incoming_id = serial.add(self.next_incoming_id, count)
        self.remote_outgoing_window = max(0, self.remote_outgoing_window - count)

    def renew_window(self) -> None:
        if self.incoming_window <= self.settings.incoming_window // 2 and self.may_send:
            self.unannounced += self.settings.incoming_window - self.incoming_window
            self.incoming_window = self.settings.incoming_window
            self.send_flow()

    @property
    def free_block(self) -> int:
        """Number of transfers before the window must be renewed, or is violated."""
        window = self.incoming_window
        return min(window - self.settings.incoming_window // 2, window - self.unannounced)

    @property
    def may_send(self) -> bool:
        return "s:frame" in states.SESSION[self.state] and self.connection.may_send

    def _count_in_transaction(self, transfer: Transfer) -> None:
        """Count a delivery of a transaction once, before its transfer can be refused or dropped."""
        if transfer.state is not None:
            link = self.remote_links.get(transfer.handle)
            begun = link.unfinished if isinstance(link, Receiver) else None
            if begun is None or not is_same(begun.remote_state, transfer.state):
                self.connection.coordinated.name(transfer.state)

    def _on_transfer(self, transfer: Transfer, payload: bytes) -> list[events.Event]:
        link = self.link(transfer.handle)
        self.count_received(1)
        if not self.is_usable(link):
            reported: list[events.Event] = []
        elif isinstance(link, Receiver):
            reported = link.guarded(transfer, payload)
        else:
            raise not_allowed("a transfer on a link whose receiver is the peer", Scope.SESSION)
        self.renew_window()
        return reported

    def on_flow(self, flow: Flow) -> list[events.Event]:
        # go-amqp's receivers may grant credit after their detach.
        link = None if flow.handle is None or flow.handle in self.handles.left else self.link(flow.handle)
        if flow.handle is None and ((flow.delivery_count, flow.link_credit, flow.available) != (None,) * 3 or flow.drain):
            raise FieldError("a flow with a link's fields and no handle", Scope.SESSION)
        self.next_incoming_id = flow.next_outgoing_id
        self.remote_outgoing_window = flow.outgoing_window
        base = self.initial_outgoing_id if flow.next_incoming_id is None else flow.next_incoming_id
        self.remote_incoming_window = max(0, flow.incoming_window - serial.difference(self.next_outgoing_id, base))
        if link is not None and not self.is_usable(link):
            link = None
        if link is not None:
            link.on_flow(flow)
        completed = self.outbox.pump()
        if flow.echo and self.may_send:
            if link is not None and "s:frame" in states.LINK[link.state]:
                link.send_flow()
            else:
                self.send_flow()
        return [events.Flowed(self, link, flow, completed)]

    def on_attach(self, attach: Attach, *, is_valid: bool = True) -> list[events.Event]:
        """Handle an answer to our attach, or a new link. A valid new link takes its name from another one."""
        if attach.handle > self.settings.handle_max:
            raise RemoteProtocolError(Condition.FRAMING_ERROR, f"handle {attach.handle} beyond handle-max")
        if attach.handle in self.remote_links:
            raise RemoteProtocolError(Condition.HANDLE_IN_USE, f"handle {attach.handle} is attached already")
        if attach.role == SENDER and attach.initial_delivery_count is None:
            raise FieldError("a sender's attach without its initial-delivery-count", Scope.SESSION)
        ours = RECEIVER if attach.role == SENDER else SENDER
        reported: list[events.Event] = []
        same = self.handles.named.get((ours, attach.name), ())
        link = next((x for x in same if x.state in (LinkState.ATTACH_SENT, LinkState.DETACH_PIPE)), None)
        if link is None:
            if attach.unsettled is None and any(x.state in _IN_ERROR for x in same):
                raise RemoteProtocolError(Condition.ERRANT_LINK, "an attach for a link in error", Scope.SESSION)
            reported = self.connection.steal(attach.name, ours, self) if is_valid else []
            link = self.receiver(attach.name) if ours == RECEIVER else self.sender(attach.name)
        self.handles.attached(attach.handle, link)
        link.on_attach(attach)
        return [*reported, events.Attached(link, attach)]

    def on_detach(self, detach: Detach) -> list[events.Event]:
        """Ignores a second detach of a handle: clients answer a detach that crossed theirs."""
        if detach.handle in self.handles.left:
            return []
        link = self.link(detach.handle)
        reported = link.on_detach(detach)
        self.handles.detached(detach.handle)
        return reported
