"""All composites: frame bodies (2.7), termini (3.5), delivery states (3.4, 4.5), lists in messages (3.2), SASL frames (5.3.3)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeAlias

from .composites import Composite, composite, wire
from .types import Described, Symbol, Value

SENDER, RECEIVER = False, True  # role (2.8.1)
SND_UNSETTLED, SND_SETTLED, SND_MIXED = 0, 1, 2  # sender-settle-mode (2.8.2)
RCV_FIRST, RCV_SECOND = 0, 1  # receiver-settle-mode (2.8.3)
SASL_OK, SASL_AUTH, SASL_SYS, SASL_SYS_PERM, SASL_SYS_TEMP = range(5)  # 5.3.3.6

Fields: TypeAlias = Mapping[str, Value]
Symbols: TypeAlias = tuple[str, ...]

_SND_MODES = (SND_UNSETTLED, SND_SETTLED, SND_MIXED)
_RCV_MODES = (RCV_FIRST, RCV_SECOND)
_EXPIRY = ("link-detach", "session-end", "connection-close", "never")
_MAX_UINT = 0xFFFFFFFF


@composite(0x1D, "amqp:error:list", "error")
class Error(Composite):
    """Section 2.8.14."""

    condition: str = wire("symbol", mandatory=True)
    description: str | None = wire("string", default=None)
    info: Fields | None = wire("notes", default=None)


# --- termini


@composite(0x28, "amqp:source:list", "source")
class Source(Composite):
    """Section 3.5.3."""

    address: Value = wire("any", default=None)
    durable: int = wire("uint", default=0, choices=(0, 1, 2))
    expiry_policy: str = wire("symbol", default="session-end", choices=_EXPIRY)
    timeout: int = wire("uint", default=0)
    dynamic: bool = wire("boolean", default=False)
    dynamic_node_properties: Fields | None = wire("fields", default=None)
    distribution_mode: str | None = wire("symbol", default=None)
    filter: Fields | None = wire("fields", default=None)
    default_outcome: Outcome | None = wire("outcome", default=None)
    outcomes: Symbols = wire("symbols", default=())
    capabilities: Symbols = wire("symbols", default=())


@composite(0x29, "amqp:target:list", "target")
class Target(Composite):
    """Section 3.5.4."""

    address: Value = wire("any", default=None)
    durable: int = wire("uint", default=0, choices=(0, 1, 2))
    expiry_policy: str = wire("symbol", default="session-end", choices=_EXPIRY)
    timeout: int = wire("uint", default=0)
    dynamic: bool = wire("boolean", default=False)
    dynamic_node_properties: Fields | None = wire("fields", default=None)
    capabilities: Symbols = wire("symbols", default=())


@composite(0x30, "amqp:coordinator:list", "target")
class Coordinator(Composite):
    """Target of a control link (4.5.1)."""

    capabilities: Symbols = wire("symbols", default=())


@composite(0x2B, "amqp:delete-on-close:list", "lifetime-policy")
class DeleteOnClose(Composite):
    """Lifetime of a dynamic node (3.5.10)."""


@composite(0x2C, "amqp:delete-on-no-links:list", "lifetime-policy")
class DeleteOnNoLinks(Composite):
    """Lifetime of a dynamic node (3.5.11)."""


@composite(0x2D, "amqp:delete-on-no-messages:list", "lifetime-policy")
class DeleteOnNoMessages(Composite):
    """Lifetime of a dynamic node (3.5.12)."""


@composite(0x2E, "amqp:delete-on-no-links-or-messages:list", "lifetime-policy")
class DeleteOnNoLinksOrMessages(Composite):
    """Lifetime of a dynamic node (3.5.13)."""


# --- delivery states


@composite(0x23, "amqp:received:list", "delivery-state")
class Received(Composite):
    """Partial reception, for resuming (3.4.1)."""

    section_number: int = wire("uint", mandatory=True)
    section_offset: int = wire("ulong", mandatory=True)


@composite(0x24, "amqp:accepted:list", "delivery-state", "outcome")
class Accepted(Composite):
    """Section 3.4.2."""


@composite(0x25, "amqp:rejected:list", "delivery-state", "outcome")
class Rejected(Composite):
    """Rejection as invalid (3.4.3)."""

    error: Error | None = wire("error", default=None)


@composite(0x26, "amqp:released:list", "delivery-state", "outcome")
class Released(Composite):
    """Return without an attempt to process (3.4.4)."""


@composite(0x27, "amqp:modified:list", "delivery-state", "outcome")
class Modified(Composite):
    """Return with changed delivery state or annotations (3.4.5)."""

    delivery_failed: bool | None = wire("boolean", default=None)
    undeliverable_here: bool | None = wire("boolean", default=None)
    message_annotations: Fields | None = wire("notes", default=None)


@composite(0x33, "amqp:declared:list", "delivery-state", "outcome")
class Declared(Composite):
    """Section 4.5.5."""

    txn_id: bytes = wire("transaction-id", mandatory=True)


@composite(0x34, "amqp:transactional-state:list", "delivery-state")
class TransactionalState(Composite):
    """Section 4.5.6."""

    txn_id: bytes = wire("transaction-id", mandatory=True)
    outcome: Outcome | None = wire("outcome", default=None)


Outcome: TypeAlias = Accepted | Rejected | Released | Modified | Declared | Described
DeliveryState: TypeAlias = Received | TransactionalState | Outcome
TERMINAL = (Accepted, Rejected, Released, Modified, Declared)
MAX_CONDITION, MAX_DESCRIPTION = 100, 200  # characters of an outcome's error
_SMALL = (Accepted, Released, Received, Declared)
UNKNOWN = Described(Symbol("unknown"), None)  # for any other delivery state


def in_short(state: DeliveryState | None) -> Any:
    """Return a received delivery state without large contents. Otherwise each delivery could keep a frame."""
    kind = type(state)
    if state is None or kind in _SMALL:
        return state
    if isinstance(state, Rejected):
        error = _short(state.error)
        return state if error is state.error else Rejected(error=error)
    if isinstance(state, Modified):
        if state.message_annotations is None:
            return state
        return Modified(delivery_failed=state.delivery_failed, undeliverable_here=state.undeliverable_here)
    if isinstance(state, TransactionalState):
        outcome = in_short(state.outcome)
        return state if outcome is state.outcome else TransactionalState(txn_id=state.txn_id, outcome=outcome)
    return UNKNOWN


def _short(error: Error | None) -> Error | None:
    if error is None:
        return None
    condition, description = error.condition, error.description
    if error.info is None and len(condition) <= MAX_CONDITION and len(description or "") <= MAX_DESCRIPTION:
        return error
    return Error(condition=condition[:MAX_CONDITION], description=description and description[:MAX_DESCRIPTION])


# --- the messages of a coordinator link (4.5)


@composite(0x31, "amqp:declare:list", "transaction")
class Declare(Composite):
    """Request for a new transaction (4.5.2)."""

    global_id: Value = wire("any", default=None)


@composite(0x32, "amqp:discharge:list", "transaction")
class Discharge(Composite):
    """Request to commit or roll back a transaction (4.5.3)."""

    txn_id: bytes = wire("transaction-id", mandatory=True)
    fail: bool | None = wire("boolean", default=None)


# --- frame bodies


@composite(0x10, "amqp:open:list", "frame")
class Open(Composite):
    """Section 2.7.1."""

    container_id: str = wire("string", mandatory=True)
    hostname: str | None = wire("string", default=None)
    max_frame_size: int = wire("uint", default=_MAX_UINT)
    channel_max: int = wire("ushort", default=0xFFFF)
    idle_time_out: int | None = wire("uint", default=None)
    outgoing_locales: Symbols = wire("symbols", default=())
    incoming_locales: Symbols = wire("symbols", default=())
    offered_capabilities: Symbols = wire("symbols", default=())
    desired_capabilities: Symbols = wire("symbols", default=())
    properties: Fields | None = wire("fields", default=None)


@composite(0x11, "amqp:begin:list", "frame")
class Begin(Composite):
    """Section 2.7.2."""

    remote_channel: int | None = wire("ushort", default=None)
    next_outgoing_id: int = wire("uint", mandatory=True)
    incoming_window: int = wire("uint", mandatory=True)
    outgoing_window: int = wire("uint", mandatory=True)
    handle_max: int = wire("uint", default=_MAX_UINT)
    offered_capabilities: Symbols = wire("symbols", default=())
    desired_capabilities: Symbols = wire("symbols", default=())
    properties: Fields | None = wire("fields", default=None)


@composite(0x12, "amqp:attach:list", "frame")
class Attach(Composite):
    """Section 2.7.3."""

    name: str = wire("string", mandatory=True)
    handle: int = wire("uint", mandatory=True)
    role: bool = wire("boolean", mandatory=True)
    snd_settle_mode: int = wire("ubyte", default=SND_MIXED, choices=_SND_MODES)
    rcv_settle_mode: int = wire("ubyte", default=RCV_FIRST, choices=_RCV_MODES)
    source: Source | Described | None = wire("source", default=None)
    target: Target | Coordinator | Described | None = wire("target", default=None)
    unsettled: Mapping[bytes, DeliveryState | None] | None = wire("unsettled", default=None)
    incomplete_unsettled: bool = wire("boolean", default=False)
    initial_delivery_count: int | None = wire("uint", default=None)
    max_message_size: int | None = wire("ulong", default=None)
    offered_capabilities: Symbols = wire("symbols", default=())
    desired_capabilities: Symbols = wire("symbols", default=())
    properties: Fields | None = wire("fields", default=None)


@composite(0x13, "amqp:flow:list", "frame")
class Flow(Composite):
    """Section 2.7.4."""

    next_incoming_id: int | None = wire("uint", default=None)
    incoming_window: int = wire("uint", mandatory=True)
    next_outgoing_id: int = wire("uint", mandatory=True)
    outgoing_window: int = wire("uint", mandatory=True)
    handle: int | None = wire("uint", default=None)
    delivery_count: int | None = wire("uint", default=None)
    link_credit: int | None = wire("uint", default=None)
    available: int | None = wire("uint", default=None)
    drain: bool = wire("boolean", default=False)
    echo: bool = wire("boolean", default=False)
    properties: Fields | None = wire("fields", default=None)


@composite(0x14, "amqp:transfer:list", "frame")
class Transfer(Composite):
    """Section 2.7.5."""

    handle: int = wire("uint", mandatory=True)
    delivery_id: int | None = wire("uint", default=None)
    delivery_tag: bytes | None = wire("binary", default=None)
    message_format: int | None = wire("uint", default=None)
    settled: bool | None = wire("boolean", default=None)
    more: bool = wire("boolean", default=False)
    rcv_settle_mode: int | None = wire("ubyte", default=None, choices=_RCV_MODES)
    state: DeliveryState | None = wire("delivery-state", default=None)
    resume: bool = wire("boolean", default=False)
    aborted: bool = wire("boolean", default=False)
    batchable: bool = wire("boolean", default=False)


@composite(0x15, "amqp:disposition:list", "frame")
class Disposition(Composite):
    """Section 2.7.6."""

    role: bool = wire("boolean", mandatory=True)
    first: int = wire("uint", mandatory=True)
    last: int | None = wire("uint", default=None)
    settled: bool = wire("boolean", default=False, written=True)  # some clients require it
    state: DeliveryState | None = wire("delivery-state", default=None)
    batchable: bool = wire("boolean", default=False)


@composite(0x16, "amqp:detach:list", "frame")
class Detach(Composite):
    """Section 2.7.7."""

    handle: int = wire("uint", mandatory=True)
    closed: bool = wire("boolean", default=False)
    error: Error | None = wire("error", default=None)


@composite(0x17, "amqp:end:list", "frame")
class End(Composite):
    """Section 2.7.8."""

    error: Error | None = wire("error", default=None)


@composite(0x18, "amqp:close:list", "frame")
class Close(Composite):
    """Section 2.7.9."""

    error: Error | None = wire("error", default=None)


# --- SASL frame bodies


@composite(0x40, "amqp:sasl-mechanisms:list", "sasl-frame")
class SaslMechanisms(Composite):
    """Section 5.3.3.1."""

    sasl_server_mechanisms: Symbols = wire("symbols", mandatory=True)


@composite(0x41, "amqp:sasl-init:list", "sasl-frame")
class SaslInit(Composite):
    """Section 5.3.3.2."""

    mechanism: str = wire("symbol", mandatory=True)
    initial_response: bytes | None = wire("binary", default=None)
    hostname: str | None = wire("string", default=None)


@composite(0x42, "amqp:sasl-challenge:list", "sasl-frame")
class SaslChallenge(Composite):
    """Section 5.3.3.3."""

    challenge: bytes = wire("binary", mandatory=True)


@composite(0x43, "amqp:sasl-response:list", "sasl-frame")
class SaslResponse(Composite):
    """Section 5.3.3.4."""

    response: bytes = wire("binary", mandatory=True)


@composite(0x44, "amqp:sasl-outcome:list", "sasl-frame")
class SaslOutcome(Composite):
    """Section 5.3.3.5."""

    code: int = wire("ubyte", mandatory=True, choices=tuple(range(5)))
    additional_data: bytes | None = wire("binary", default=None)


# --- message sections that are lists


@composite(0x70, "amqp:header:list", "section")
class Header(Composite):
    """Header of a message (3.2.1).

    Attributes:
        durable: Whether the broker keeps the message over a restart. The default is False.
        priority: 0 to 255; the default is 4. Penstock's queues distinguish 0 to 9.
        ttl: Milliseconds after which the message expires.
        first_acquirer: Whether no consumer had it before; set by the broker.
        delivery_count: Number of failed deliveries; set by the broker.
    """

    durable: bool = wire("boolean", default=False)
    priority: int = wire("ubyte", default=4)
    ttl: int | None = wire("uint", default=None)
    first_acquirer: bool = wire("boolean", default=False)
    delivery_count: int = wire("uint", default=0)


@composite(0x73, "amqp:properties:list", "section")
class Properties(Composite):
    """Properties of a message (3.2.4).

    Attributes:
        message_id: Id: text, octets, a UUID or an unsigned number.
        user_id: User who made the message.
        to: Address of the queue that it is for.
        subject: Subject.
        reply_to: Address for answers.
        correlation_id: Id of the message that this one answers.
        content_type: MIME type of the body.
        content_encoding: Encoding of the body, such as gzip.
        absolute_expiry_time: Milliseconds since 1970 at which it expires.
        creation_time: Milliseconds since 1970 at which it was made.
        group_id: Message group.
        group_sequence: Position in the group.
        reply_to_group_id: Group that answers belong to.
    """

    message_id: Value = wire("message-id", default=None)
    user_id: bytes | None = wire("binary", default=None)
    to: str | None = wire("address", default=None)
    subject: str | None = wire("string", default=None)
    reply_to: str | None = wire("address", default=None)
    correlation_id: Value = wire("message-id", default=None)
    content_type: str | None = wire("symbol", default=None)
    content_encoding: str | None = wire("symbol", default=None)
    absolute_expiry_time: int | None = wire("timestamp", default=None)
    creation_time: int | None = wire("timestamp", default=None)
    group_id: str | None = wire("string", default=None)
    group_sequence: int | None = wire("uint", default=None)
    reply_to_group_id: str | None = wire("string", default=None)
