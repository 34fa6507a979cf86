"""Local transactions (part 4): what a control link carries. Both roles: a controller says it, a coordinator reads it.

sender.attach(target=Coordinator(capabilities=(LOCAL_TRANSACTIONS,)))
sender.send(b"0", request(Declare()))                       # answered by Declared(txn_id=…)
other.send(b"1", message, state=TransactionalState(txn_id=…))  # answered by TransactionalState(txn_id=…, outcome=Accepted())
sender.send(b"2", request(Discharge(txn_id=…, fail=False)))    # answered by Accepted()
"""

from __future__ import annotations

from . import events
from .composites import compose
from .errors import DecodeError
from .messages import Message, decode_message
from .performatives import Declare, Discharge, TransactionalState

# 4.5.7 txn-capability: what a controller asks of a coordinator, and what that says it can do.
LOCAL_TRANSACTIONS = "amqp:local-transactions"
DISTRIBUTED_TRANSACTIONS = "amqp:distributed-transactions"
PROMOTABLE_TRANSACTIONS = "amqp:promotable-transactions"
MULTI_TXNS_PER_SSN = "amqp:multi-txns-per-ssn"
MULTI_SSNS_PER_TXN = "amqp:multi-ssns-per-txn"

TXN_ID = "txn-id"
"""The key of a flow's properties that asks for transactional acquisition (4.4.3)."""


class Coordinated:
    """The transactions that a coordinator has open on a connection, and how much the peer names in them, frame by frame.

    Nothing can refuse or drop a frame before it is counted, whatever becomes of its link or its session. So a coordinator that
    counts what it has done of a transaction knows whether that is all. See `events.Named`.
    """

    __slots__ = ("_named", "_open")

    def __init__(self) -> None:
        self._open: set[bytes] = set()
        self._named: list[events.Named] = []

    def open(self, txn_id: bytes) -> None:
        """Report what is named in this transaction from here on."""
        self._open.add(txn_id)

    def close(self, txn_id: bytes) -> None:
        self._open.discard(txn_id)

    def name(self, state: object, count: int = 1) -> None:
        """So many deliveries came with this state; less than 0 takes back."""
        if isinstance(state, TransactionalState) and state.txn_id in self._open:
            self._named.append(events.Named(state.txn_id, count))

    def take(self) -> list[events.Named]:
        """What was named since the last call."""
        named, self._named = self._named, []
        return named


def is_same(state: object, other: object) -> bool:
    """Whether both states are of one transaction."""
    return isinstance(state, TransactionalState) and isinstance(other, TransactionalState) and state.txn_id == other.txn_id


def request(body: Declare | Discharge) -> bytes:
    """The message that a controller sends: the body alone, as an amqp-value (4.2, 4.3)."""
    return Message(value=body, has_value=True).encode()


def request_of(payload: bytes) -> Declare | Discharge:
    """What a message on a control link asks for; its other sections are ignored. DecodeError, FieldError if it is neither."""
    message = decode_message(payload)
    body = compose(message.value) if message.has_value else None
    if not isinstance(body, (Declare, Discharge)):
        raise DecodeError("a control link takes a declare or a discharge, as an amqp-value", 0)
    return body
