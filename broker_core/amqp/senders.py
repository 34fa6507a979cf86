"""The sending end of a link (2.6.7, 2.6.12 to 2.6.14): use and drain of credit, and messages cut into transfers.

Transfers beyond the peer's session window leave with its next flow. At most one delivery of a session waits, and no other is
accepted meanwhile (`can_send`): an unbounded queue would hide a slow peer from the caller.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from itertools import repeat
from typing import NamedTuple

from . import serial, states
from .deliveries import Delivery
from .encoder import encode
from .errors import Condition, LocalProtocolError
from .frames import HEADER_SIZE
from .links import Link
from .performatives import SENDER, SND_SETTLED, SND_UNSETTLED, DeliveryState, Flow, Transfer
from .states import LinkState
from .transactions import TXN_ID
from .types import Symbol, Value

# A frame's header, the descriptor of a transfer, the head of a list8.
_HEAD = struct.Struct(">IBBH3s3B")
_OCTET = [bytes((number,)) for number in range(256)]


MAX_FIELDS = 250  # octets of a transfer's list in its short form
_LONG_IDS = range(256, 1 << 32)  # delivery ids with the same encoding


class _TransferFrame(NamedTuple):
    """The fixed octets of a transfer: frame header and descriptor, number of fields, handle, fields after the tag."""

    head: bytes
    fields: int
    handle: bytes
    tail: bytes


class Sender(Link):
    """A link on which we send messages."""

    role = SENDER
    #: The transaction in which messages are acquired for this link (4.4.3). The receiver's flows set it, ours name it, and the
    #: application clears it at the discharge.
    txn_id: bytes | None = None
    incomplete: Delivery | None = None

    @property
    def can_send(self) -> bool:
        return self.link_credit > 0 and self.incomplete is None and self.state is LinkState.ATTACHED and not self.session.blocked

    def send(
        self,
        tag: bytes,
        payload: bytes,
        *,
        settled: bool | None = None,
        state: DeliveryState | None = None,
        resume: bool = False,
        more: bool = False,
    ) -> Delivery:
        """Send a message, in as many transfers as it needs. `more` keeps the delivery open.

        `tag` differs from the tags of all unsettled deliveries. `settled` follows the link's mode by default. Raises
        LocalProtocolError without credit, beyond max-message-size, or against the agreed modes.
        """
        self._check_sendable()
        settled = self._settled(settled)
        self._check_tag(tag, resume)
        if 0 < self.max_message_size < len(payload):
            raise LocalProtocolError(f"a message of {len(payload)} octets where the peer takes {self.max_message_size}")
        number, mode = self.session.next_delivery_id, self.rcv_settle_mode
        delivery = Delivery(self, number, tag, 0, b"", settled, mode, state=state, resumed=resume)
        transfer = Transfer(
            handle=self._handle(),
            delivery_id=number,
            delivery_tag=tag,
            message_format=0,
            settled=settled,
            more=more,
            state=state,
            resume=resume,
        )
        if len(transfer.encode()) + HEADER_SIZE + 16 > self.session.connection.remote_max_frame_size:
            raise LocalProtocolError(f"{Condition.FRAME_SIZE_TOO_SMALL}: a transfer with so large a state fits no frame")
        self.session.next_delivery_id = serial.add(number, 1)
        if not settled:
            self.unsettled[tag] = delivery
            self.session.outgoing[number] = delivery
        self.resumable.pop(tag, None)
        self.incomplete = delivery
        self.session.outbox.put(self, transfer, payload)
        return delivery

    def abort(self, delivery: Delivery) -> None:
        states.advance(states.LINK, self.state, "s:frame")
        if self.incomplete is not delivery or self.session.blocked:
            raise LocalProtocolError("that delivery is complete, or its last transfer still waits for the window")
        delivery.settled = True
        self.session.settle([delivery], SENDER)
        self.session.outbox.put(self, Transfer(handle=self._handle(), aborted=True), b"")

    def send_many(
        self, tags: Sequence[bytes], payloads: Sequence[bytes], *, settled: bool | None = None, state: DeliveryState | None = None
    ) -> list[Delivery]:
        """Send as many of the messages, in order, as credit, window and frame size allow. The octets equal those of `send`."""
        if not self.can_send:
            return []
        self._check_complete()
        settled = self._settled(settled)
        count = min(len(tags), len(payloads), self.link_credit, self.session.remote_incoming_window)
        limit, space = self.max_message_size, self.session.connection.remote_max_frame_size - HEADER_SIZE - 64
        handle = _uint(self._handle())
        tail = b"\x43\x41" if settled else b"\x43\x42"  # message-format 0, settled
        fields = 5
        if state is not None:
            tail += b"\x40\x40" + encode(state)  # without `more` and rcv-settle-mode
            fields = 8
            space -= len(tail)
        channel, number = self.session.local_channel, self.session.next_delivery_id
        mode, sent, out = self.rcv_settle_mode, [], []
        tags, payloads = tags[:count], payloads[:count]
        largest = min(space, limit) if limit else space
        lasting = number in _LONG_IDS and number + count - 1 in _LONG_IDS
        if count and lasting and self._alike(tags, payloads, largest, len(handle + tail)):
            head = struct.pack(">BBH3s", 2, 0, channel, b"\x00\x53\x14")
            return self._send_alike(tags, payloads, _TransferFrame(head, fields, handle, tail), settled, state)
        for tag, payload in zip(tags, payloads, strict=False):
            size = len(payload)
            if size > space or (limit and size > limit) or not 0 < len(tag) <= 32 or tag in self.unsettled:
                break
            word = b"\x70" + number.to_bytes(4, "big") if number > 255 else _uint(number)
            head = b"".join((handle, word, b"\xa0", _OCTET[len(tag)], tag, tail))
            length = len(head)
            if length > MAX_FIELDS:
                break  # a large state
            out.append(_HEAD.pack(14 + length + size, 2, 0, channel, b"\x00\x53\x14", 0xC0, length + 1, fields) + head + payload)
            delivery = Delivery(self, number, tag, 0, b"", settled, mode, state=state)
            if not settled:
                self.unsettled[tag] = delivery
                self.session.outgoing[number] = delivery
            sent.append(delivery)
            number = serial.add(number, 1)
        self._have_sent(len(sent), out)
        return sent

    def _alike(self, tags: Sequence[bytes], payloads: Sequence[bytes], largest: int, around: int) -> bool:
        count, width = len(tags), len(tags[0])
        return (
            0 < width <= 32
            and 5 + 2 + width + around <= MAX_FIELDS
            and len(payloads) == count
            and max(map(len, payloads)) <= largest
            and {width} == set(map(len, tags))
            and len(set(tags)) == count
            and self.unsettled.keys().isdisjoint(tags)
        )

    def _send_alike(
        self, tags: Sequence[bytes], payloads: Sequence[bytes], frame: _TransferFrame, settled: bool, state: DeliveryState | None
    ) -> list[Delivery]:
        """Send transfers that are `_alike`. The octets around the holes are made once."""
        count, width, first = len(tags), len(tags[0]), self.session.next_delivery_id
        head, fields, handle, tail = frame
        length = len(handle) + 5 + 2 + width + len(tail)
        before = b"".join((head, bytes((0xC0, length + 1, fields)), handle, b"\x70"))
        between, size = bytes((0xA0, width)), 14 + length
        pack, ids, out = _layout(len(before), width, len(tail)), range(first, first + count), list[bytes]()
        for number, tag, payload in zip(ids, tags, payloads, strict=True):
            out += (pack(size + len(payload), before, number, between, tag, tail), payload)
        terms = (0, b"", settled, self.rcv_settle_mode, False, state)
        sent = list(map(Delivery, repeat(self), ids, tags, *map(repeat, terms)))
        if not settled:
            self.unsettled.update(zip(tags, sent, strict=True))
            self.session.outgoing.update(zip(ids, sent, strict=True))
        self._have_sent(count, out)
        return sent

    def _have_sent(self, count: int, pieces: list[bytes]) -> None:
        self.session.next_delivery_id = serial.add(self.session.next_delivery_id, count)
        self.session.outbox.put_ready(pieces, count)
        self._count(count)

    def abort_rest(self) -> bool:
        """Abort a delivery whose transfers wait for the session's window. Return True if there is one."""
        delivery = self.incomplete
        if delivery is None or not self.session.outbox.abort(self):
            return False
        delivery.settled = True
        self.session.settle([delivery], SENDER)
        return True

    def drained(self) -> None:
        """Use up the credit if the receiver has asked to drain, and report that (2.6.7)."""
        if not self.drain or self.incomplete is not None:
            return
        self.delivery_count = serial.add(self.delivery_count, self.link_credit)
        self.link_credit = 0
        self.send_flow()

    # --- the peer's side

    def on_flow(self, flow: Flow) -> None:
        """The receiver's credit counts from its delivery-count, or from our initial one."""
        if flow.link_credit is not None:
            count = flow.delivery_count
            if count is None:
                assert self.local_attach is None or self.local_attach.initial_delivery_count is not None
                count = (self.local_attach.initial_delivery_count or 0) if self.local_attach else self.delivery_count
            credit = flow.link_credit - serial.difference(self.delivery_count, count)
            self.link_credit = min(max(0, credit), serial.MASK)  # a count ahead of ours would exceed a uint
        self.drain = flow.drain
        if flow.properties is not None and TXN_ID in flow.properties:
            txn_id = flow.properties[TXN_ID]
            self.txn_id = txn_id if isinstance(txn_id, bytes) else None

    def send_flow(self, echo: bool = False, properties: Mapping[str, Value] | None = None) -> None:
        if self.txn_id is not None:
            properties = {Symbol(TXN_ID): self.txn_id, **(properties or {})}
        super().send_flow(echo, properties)

    def completed(self) -> None:
        self.incomplete = None
        self._count(1)

    def _handle(self) -> int:
        assert self.handle is not None
        return self.handle

    def _check_sendable(self) -> None:
        states.advance(states.LINK, self.state, "s:frame")
        if self.incomplete is not None:
            raise LocalProtocolError("another delivery of this link is not complete")
        if self.session.blocked:
            raise LocalProtocolError("the session's window is closed")
        if self.link_credit <= 0:
            raise LocalProtocolError("no link credit")

    def _check_tag(self, tag: bytes, resume: bool) -> None:
        if not 0 < len(tag) <= 32:
            raise LocalProtocolError(f"a delivery tag of {len(tag)} octets")
        if tag in self.unsettled:
            raise LocalProtocolError("the tag of an unsettled delivery used again")
        if resume and tag not in self.resumable:
            raise LocalProtocolError("a resume of a delivery that our unsettled map does not have")
        if not resume:
            self._check_complete()

    def _check_complete(self) -> None:
        for attach in (self.local_attach, self.remote_attach):
            if attach is not None and attach.incomplete_unsettled:
                raise LocalProtocolError("a new delivery while an unsettled map is incomplete")

    def _settled(self, settled: bool | None) -> bool:
        mode = self.snd_settle_mode
        if settled is None:
            return mode == SND_SETTLED
        if (mode == SND_UNSETTLED and settled) or (mode == SND_SETTLED and not settled):
            raise LocalProtocolError("settled against the sender-settle-mode of the link")
        return settled


@lru_cache(256)
def _layout(before: int, tag: int, tail: int) -> Callable[..., bytes]:
    """Return the packing of size, octets before the id, id, the tag's head, tag, and the rest before the payload."""
    return struct.Struct(f">I{before}sI2s{tag}s{tail}s").pack


def _uint(number: int) -> bytes:
    if number == 0:
        return b"\x43"
    return bytes((0x52, number)) if number < 256 else b"\x70" + number.to_bytes(4, "big")
