"""The receiving end of a link (2.6.7, 2.6.12 to 2.6.14): credit, and deliveries assembled from transfers.

A sender may use credit up to the highest delivery-limit that we announced, until it confirms a lower one. So messages on their
way when we took credit back are accepted. The delivery-count advances with each complete or aborted delivery, and with the
sender's own count when it gives up credit, but never back, nor beyond the granted credit.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import repeat

from . import events, serial, states
from .deliveries import Delivery, DeliveryBlock
from .errors import Condition, FieldError, LocalProtocolError, RemoteProtocolError, Scope
from .fastpath import TransferRun
from .links import Link, not_allowed
from .performatives import (
    RCV_FIRST,
    RCV_SECOND,
    RECEIVER,
    SND_SETTLED,
    SND_UNSETTLED,
    TERMINAL,
    Attach,
    DeliveryState,
    Flow,
    TransactionalState,
    Transfer,
    in_short,
)
from .states import LinkState
from .types import Value

MAX_TAG = 32  # octets (2.8.7)


@dataclass(slots=True, eq=False)
class _Partial:
    """An incomplete delivery. An `ignored` one resumes a delivery that we do not have (2.7.5)."""

    delivery: Delivery
    ignored: bool
    data: bytes | bytearray = b""
    size: int = 0
    held: int = 0
    settled: bool = False
    counted: bool = False  # by the sender, before its last transfer

    def add(self, payload: bytes) -> None:
        """Append to one buffer. A list of parts would grow large for a message sent octet by octet."""
        if not self.data:
            self.data = payload
        else:
            if type(self.data) is bytes:
                self.data = bytearray(self.data)
            self.data += payload


class Receiver(Link):
    """A link on which we receive messages."""

    role = RECEIVER
    #: True if runs of transfers become blocks, for applications that settle ranges of ids. A later state of the sender is then
    #: dropped, and a repeated tag not detected.
    in_blocks = False
    _partial: _Partial | None = None
    _limit = 0  # delivery-count + link-credit, as last announced
    _granted = 0  # the highest limit that the sender may still use

    # --- our side

    def grant(
        self, credit: int, *, drain: bool = False, echo: bool = False, properties: Mapping[str, Value] | None = None
    ) -> None:
        """Replace the link credit, in messages, and send it. `drain` asks the sender to use it up now, `echo` to send its flow
        state.
        """
        if not 0 <= credit <= 0x7FFFFFFF:
            raise LocalProtocolError(f"a credit of {credit} messages")
        states.advance(states.LINK, self.state, "s:frame")
        self.link_credit, self.drain = credit, drain
        self._limit = serial.add(self.delivery_count, credit)
        if self.remote_attach is None or serial.difference(self._limit, self._granted) > 0:
            self._granted = self._limit
        self.send_flow(echo, properties)

    @property
    def unfinished(self) -> Delivery | None:
        return None if self._partial is None else self._partial.delivery

    # --- the peer's side

    def on_attach(self, attach: Attach) -> None:
        """Our count starts at the sender's initial delivery-count, including credit granted before."""
        early = self.link_credit
        super().on_attach(attach)
        self._limit = self._granted = serial.add(self.delivery_count, early)

    def on_flow(self, flow: Flow) -> None:
        if (count := flow.delivery_count) is None:
            raise FieldError("a sender's flow without its delivery-count", Scope.SESSION)
        ahead = min(serial.difference(count, self.delivery_count), self._capacity())
        if ahead > 0:
            self.delivery_count = serial.add(self.delivery_count, ahead)
            if self._partial is not None:
                self._partial.counted = True
        self.available = flow.available or 0
        self.link_credit = max(0, serial.difference(self._limit, self.delivery_count))
        if flow.link_credit is not None and serial.add(count, flow.link_credit) == self._limit:
            self._granted = self._limit
        if self.link_credit == 0:
            self.drain = False

    def guarded(self, transfer: Transfer, payload: bytes) -> list[events.Event]:
        try:
            return self.on_transfer(transfer, payload)
        except RemoteProtocolError as error:
            if error.scope is not Scope.LINK:
                raise
            return [self.violated(error)]

    def on_transfer(self, transfer: Transfer, payload: bytes) -> list[events.Event]:
        partial = self._partial
        if partial is None:
            partial = self._partial = self._first(transfer)
        else:
            self._check_continuation(partial.delivery, transfer)
        delivery = partial.delivery
        if transfer.settled:
            partial.settled = True
        if transfer.state is not None:
            _apply_state(delivery, transfer.state)
        if transfer.aborted:
            self._completed()
            self.session.connection.coordinated.name(delivery.remote_state, -1)  # it leaves its transaction
            delivery.settled = delivery.remote_settled = True
            self.session.settle([delivery], RECEIVER)
            return [] if partial.ignored else [events.Aborted(self, delivery)]
        partial.size += len(payload)
        limit = self.max_message_size
        if limit and partial.size > limit:
            raise RemoteProtocolError(Condition.MESSAGE_SIZE_EXCEEDED, f"a message of more than {limit} octets", Scope.LINK)
        if not partial.ignored:
            partial.add(payload)
        if transfer.more:
            self._hold(partial, len(payload))
            return []
        if not partial.settled and self.snd_settle_mode == SND_SETTLED:
            raise not_allowed("an unsettled delivery on a link whose sender settles")
        if partial.settled and self.snd_settle_mode == SND_UNSETTLED:
            raise not_allowed("a settled delivery on a link whose sender does not settle")
        self._completed()
        if partial.ignored:
            return []
        delivery.payload = bytes(partial.data)
        if partial.settled:
            delivery.settled = delivery.remote_settled = True
            self.session.settle([delivery], RECEIVER)
        return [events.Delivered(self, [delivery])]

    def _hold(self, partial: _Partial, octets: int) -> None:
        connection = self.session.connection
        partial.held += octets
        connection.unfinished_size += octets
        limit = connection.settings.max_unfinished_size
        if 0 < limit < connection.unfinished_size:
            text = f"more than {limit} octets of messages that are not complete"
            raise RemoteProtocolError(Condition.RESOURCE_LIMIT_EXCEEDED, text, Scope.LINK)
        if not connection.may_keep(connection.unfinished_size):
            text = "all connections together have too many messages that are not complete: try again later"
            raise RemoteProtocolError(Condition.RESOURCE_LIMIT_EXCEEDED, text, Scope.LINK)

    def drop_unfinished(self) -> None:
        if self._partial is not None:
            connection, held = self.session.connection, self._partial.held
            self._partial = None
            if held:
                connection.unfinished_size -= held
                connection.may_keep(connection.unfinished_size)

    def _completed(self) -> None:
        partial = self._partial
        if partial is not None and partial.delivery.resumed:
            self.resumable.pop(partial.delivery.tag, None)
        self.drop_unfinished()
        if partial is None or not partial.counted:
            self._count(1)
        else:
            self.available = max(0, self.available - 1)

    def _first(self, transfer: Transfer) -> _Partial:
        if transfer.delivery_id is None or transfer.delivery_tag is None:
            raise FieldError("the first transfer of a delivery without its id or tag", Scope.LINK)
        if len(transfer.delivery_tag) > MAX_TAG:
            raise FieldError(f"a delivery tag of {len(transfer.delivery_tag)} octets", Scope.LINK)
        if transfer.message_format is None and transfer.more:
            raise FieldError("the first of several transfers without its message-format", Scope.LINK)
        self.session.take_delivery_id(transfer.delivery_id)
        if self._capacity() <= 0:
            raise RemoteProtocolError(Condition.TRANSFER_LIMIT_EXCEEDED, "a transfer without credit", Scope.LINK)
        mode = self.rcv_settle_mode
        if transfer.rcv_settle_mode is not None and not transfer.settled:
            if transfer.rcv_settle_mode == RCV_SECOND and mode == RCV_FIRST:
                raise FieldError("rcv-settle-mode second on a link of mode first", Scope.LINK)
            mode = transfer.rcv_settle_mode
        attach = self.local_attach
        if attach is not None and attach.incomplete_unsettled and not transfer.resume:
            raise not_allowed("a new delivery while our unsettled map is incomplete")
        if transfer.delivery_tag in self.unsettled:
            raise not_allowed("the tag of an unsettled delivery used again")
        tag, number = transfer.delivery_tag, transfer.delivery_id
        delivery = Delivery(self, number, tag, transfer.message_format or 0, b"", False, mode)
        ignored = False
        if transfer.resume:
            ignored = tag not in self.resumable
            delivery.resumed, delivery.state = True, self.resumable.get(tag)
        if not ignored:
            self.session.incoming[number] = delivery
            self.unsettled[tag] = delivery
        return _Partial(delivery, ignored)

    def _check_continuation(self, delivery: Delivery, transfer: Transfer) -> None:
        same = (
            transfer.delivery_id in (None, delivery.id)
            and transfer.delivery_tag in (None, delivery.tag)
            and transfer.message_format in (None, delivery.format)
        )
        if not same:
            raise FieldError("a continuation transfer with another id, tag or format", Scope.LINK)

    def on_run(self, run: TransferRun, begin: int, end: int) -> list[Delivery] | DeliveryBlock | None:
        """Return transfers `begin` to `end` of a run; None if they need `on_transfer`."""
        ids, tags, payloads = run.ids[begin:end], run.tags[begin:end], run.payloads[begin:end]
        count, first, last = len(ids), ids[0], ids[-1]
        settled = run.transfer.settled is True
        attach, mode = self.local_attach, self.snd_settle_mode
        limit = self.max_message_size
        if (
            self.state is not LinkState.ATTACHED
            or self._partial is not None
            or count > self._capacity()
            or last - first != count - 1
            or ids != list(range(first, last + 1))
            or not self.session.is_next_delivery_id(first)
            or len(tags[0]) > MAX_TAG
            or (attach is not None and attach.incomplete_unsettled)
            or mode == (SND_UNSETTLED if settled else SND_SETTLED)
            or (limit and max(map(len, payloads)) > limit)
        ):
            return None
        if self.in_blocks and run.transfer.state is None:
            self._took(count, last)
            return DeliveryBlock(first, payloads, settled)
        unsettled = self.unsettled
        if len(set(tags)) != count or not unsettled.keys().isdisjoint(tags):
            return None
        form = run.transfer.message_format or 0
        terms = (settled, self.rcv_settle_mode, settled, None, in_short(run.transfer.state))
        deliveries = list(map(Delivery, repeat(self), ids, tags, repeat(form), payloads, *map(repeat, terms)))
        if not settled:
            unsettled.update(zip(tags, deliveries, strict=True))
            self.session.incoming.update(zip(ids, deliveries, strict=True))
        self._took(count, last)
        return deliveries

    def _capacity(self) -> int:
        return serial.difference(self._granted, self.delivery_count) + self.session.connection.credit_overrun

    def _took(self, count: int, last: int) -> None:
        self.session.take_delivery_id(last)
        self._count(count)


def _apply_state(delivery: Delivery, state: DeliveryState) -> None:
    """All states of one delivery must name the same transaction (4.4.1)."""
    known = delivery.remote_state
    if isinstance(known, TransactionalState) and (not isinstance(state, TransactionalState) or state.txn_id != known.txn_id):
        raise not_allowed("a delivery whose transfers are not of one transaction")
    if not isinstance(known, TERMINAL):
        delivery.remote_state = in_short(state)
