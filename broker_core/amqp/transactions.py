"""Local transactions (part 4): what a control link carries. Both roles: a controller says it, a coordinator reads it.

sender.attach(target=Coordinator(capabilities=(LOCAL_TRANSACTIONS,)))
sender.send(b"0", request(Declare()))                       # answered by Declared(txn_id=…)
other.send(b"1", message, state=TransactionalState(txn_id=…))  # answered by TransactionalState(txn_id=…, outcome=Accepted())
sender.send(b"2", request(Discharge(txn_id=…, fail=False)))    # answered by Accepted()
"""

from __future__ import annotations

from .composites import compose
from .errors import DecodeError
from .messages import Message, decode_message
from .performatives import Declare, Discharge

# 4.5.7 txn-capability: what a controller asks of a coordinator, and what that says it can do.
LOCAL_TRANSACTIONS = "amqp:local-transactions"
DISTRIBUTED_TRANSACTIONS = "amqp:distributed-transactions"
PROMOTABLE_TRANSACTIONS = "amqp:promotable-transactions"
MULTI_TXNS_PER_SSN = "amqp:multi-txns-per-ssn"
MULTI_SSNS_PER_TXN = "amqp:multi-ssns-per-txn"

TXN_ID = "txn-id"
"""The key of a flow's properties that asks for transactional acquisition (4.4.3)."""


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
