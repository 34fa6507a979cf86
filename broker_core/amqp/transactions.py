"""Local transactions (part 4): the messages of a control link, from a controller to a coordinator."""

from __future__ import annotations

from . import events
from .composites import compose
from .errors import DecodeError
from .messages import Message, decode_message
from .performatives import Declare, Discharge, TransactionalState

# 4.5.7 txn-capability: desired by a controller, offered by a coordinator.
LOCAL_TRANSACTIONS = "amqp:local-transactions"
MULTI_TXNS_PER_SSN = "amqp:multi-txns-per-ssn"
MULTI_SSNS_PER_TXN = "amqp:multi-ssns-per-txn"

TXN_ID = "txn-id"  # property of a flow that asks for transactional acquisition (4.4.3)


class Coordinated:
    """Open transactions on a connection, and the messages and outcomes in which the peer names them.

    A frame is counted before its link or session can refuse or drop it, so a coordinator can detect lost work.
    """

    __slots__ = ("_named", "_open", "period")

    def __init__(self) -> None:
        self.period = 0  # number of closed transactions
        self._open: set[bytes] = set()
        self._named: list[events.Named] = []

    def open(self, txn_id: bytes) -> None:
        self._open.add(txn_id)

    def close(self, txn_id: bytes) -> None:
        self._open.discard(txn_id)
        self.period += 1

    def name(self, state: object, count: int = 1) -> None:
        """Count deliveries with this state. A negative count takes deliveries back."""
        if count and isinstance(state, TransactionalState) and state.txn_id in self._open:
            self._named.append(events.Named(state.txn_id, count))

    def take(self) -> list[events.Named]:
        named, self._named = self._named, []
        return named


def is_same(first: object, second: object) -> bool:
    return isinstance(first, TransactionalState) and isinstance(second, TransactionalState) and first.txn_id == second.txn_id


def request(body: Declare | Discharge) -> bytes:
    """Return a controller's message (4.2, 4.3)."""
    return Message(value=body, has_value=True).encode()


def request_of(payload: bytes) -> Declare | Discharge:
    """Return the request in a control link's message. Raises DecodeError, FieldError."""
    message = decode_message(payload)
    body = compose(message.value) if message.has_value else None
    if not isinstance(body, (Declare, Discharge)):
        raise DecodeError("a control link takes a declare or a discharge, as an amqp-value", 0)
    return body
