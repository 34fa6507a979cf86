"""Errors, in two kinds as in h11: a `LocalProtocolError` is the caller's fault, a `RemoteProtocolError` the peer's.

`Connection.receive_data` reports a remote error as an event and queues the answer. It does not raise, because the valid frames
before the error must not be lost.
"""

from __future__ import annotations

from enum import Enum


class Condition:
    """Error conditions of the specification. They are plain strings, because a peer may use others."""

    # 2.8.15 amqp-error
    INTERNAL_ERROR = "amqp:internal-error"
    NOT_FOUND = "amqp:not-found"
    UNAUTHORIZED_ACCESS = "amqp:unauthorized-access"
    DECODE_ERROR = "amqp:decode-error"
    RESOURCE_LIMIT_EXCEEDED = "amqp:resource-limit-exceeded"
    NOT_ALLOWED = "amqp:not-allowed"
    INVALID_FIELD = "amqp:invalid-field"
    NOT_IMPLEMENTED = "amqp:not-implemented"
    RESOURCE_LOCKED = "amqp:resource-locked"
    PRECONDITION_FAILED = "amqp:precondition-failed"
    RESOURCE_DELETED = "amqp:resource-deleted"
    ILLEGAL_STATE = "amqp:illegal-state"
    FRAME_SIZE_TOO_SMALL = "amqp:frame-size-too-small"
    # 2.8.16 connection-error
    CONNECTION_FORCED = "amqp:connection:forced"
    FRAMING_ERROR = "amqp:connection:framing-error"
    CONNECTION_REDIRECT = "amqp:connection:redirect"
    # 2.8.17 session-error
    WINDOW_VIOLATION = "amqp:session:window-violation"
    ERRANT_LINK = "amqp:session:errant-link"
    HANDLE_IN_USE = "amqp:session:handle-in-use"
    UNATTACHED_HANDLE = "amqp:session:unattached-handle"
    # 2.8.18 link-error
    DETACH_FORCED = "amqp:link:detach-forced"
    TRANSFER_LIMIT_EXCEEDED = "amqp:link:transfer-limit-exceeded"
    MESSAGE_SIZE_EXCEEDED = "amqp:link:message-size-exceeded"
    LINK_REDIRECT = "amqp:link:redirect"
    STOLEN = "amqp:link:stolen"
    # 4.5.8 transaction-error
    TRANSACTION_UNKNOWN_ID = "amqp:transaction:unknown-id"
    TRANSACTION_ROLLBACK = "amqp:transaction:rollback"
    TRANSACTION_TIMEOUT = "amqp:transaction:timeout"


class Scope(Enum):
    """Endpoint that a remote error ends."""

    CONNECTION = "connection"
    SESSION = "session"
    LINK = "link"


class ProtocolError(Exception):
    """Base of all errors of this library."""


class LocalProtocolError(ProtocolError):
    """A request that the protocol or the peer's limits do not allow now. It has changed nothing."""


class EncodeError(LocalProtocolError):
    """A value out of its type's range, or of a type unknown to AMQP."""


class RemoteProtocolError(ProtocolError):
    """A violation by the peer. `condition` is the symbol of the answer (2.8.15 to 2.8.18, 4.5.8), `description` is for people."""

    def __init__(self, condition: str, description: str, scope: Scope = Scope.CONNECTION) -> None:
        super().__init__(f"{condition}: {description}")
        self.condition = condition
        self.description = description
        self.scope = scope


class DecodeError(RemoteProtocolError):
    """Octets that are not a valid AMQP value. `offset` counts from the start of the buffer."""

    def __init__(self, description: str, offset: int) -> None:
        super().__init__(Condition.DECODE_ERROR, f"{description} at offset {offset}")
        self.reason = description
        self.offset = offset


class FieldError(RemoteProtocolError):
    """A well-formed field with an invalid value (amqp:invalid-field)."""

    def __init__(self, description: str, scope: Scope = Scope.CONNECTION) -> None:
        super().__init__(Condition.INVALID_FIELD, description, scope)


class FramingError(RemoteProtocolError):
    """An invalid frame header, or one beyond a limit (amqp:connection:framing-error)."""

    def __init__(self, description: str) -> None:
        super().__init__(Condition.FRAMING_ERROR, description)
