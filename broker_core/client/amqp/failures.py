"""Penstock's errors for the peer's conditions and outcomes: who is at fault, and what to do."""

from __future__ import annotations

from ... import errors
from ...amqp import Accepted, Condition, Modified, Rejected, Released, RemoteProtocolError
from ...amqp.performatives import Error

_KINDS: dict[str, type[errors.PenstockError]] = {
    Condition.NOT_FOUND: errors.NotFound,
    Condition.UNAUTHORIZED_ACCESS: errors.NotAllowed,
    Condition.RESOURCE_LIMIT_EXCEEDED: errors.ResourceLimit,
    Condition.MESSAGE_SIZE_EXCEEDED: errors.ResourceLimit,
    Condition.RESOURCE_LOCKED: errors.InUse,
    Condition.NOT_ALLOWED: errors.InvalidRequest,
    Condition.NOT_IMPLEMENTED: errors.InvalidRequest,
    Condition.INVALID_FIELD: errors.InvalidRequest,
    Condition.DECODE_ERROR: errors.InvalidRequest,
    Condition.PRECONDITION_FAILED: errors.InvalidRequest,
}


def from_peer(error: Error | None, what: str) -> errors.PenstockError:
    """Return the error for the peer's condition; `what` begins its text ("the broker closed the connection")."""
    if error is None:
        return errors.PeerError(what)
    text = f"{what}: {error.description} ({error.condition})" if error.description else f"{what}: {error.condition}"
    return _KINDS.get(error.condition, errors.PeerError)(text)


def from_violation(error: RemoteProtocolError, address: str, largest: int) -> errors.PenstockError:
    """Return the error for a link that we have ended, because its peer broke the protocol or sent more than `largest` octets."""
    if error.condition in (Condition.MESSAGE_SIZE_EXCEEDED, Condition.RESOURCE_LIMIT_EXCEEDED):
        return errors.ResourceLimit(
            f"the broker sends {error.description} from {address!r}, where this client takes {largest:,} octets in one: if"
            " messages there are meant to be so large, raise max_message_octets (Spark: the option maxMessageBytes); if not, take"
            " them from there with another client"
        )
    return errors.PeerError(f"the broker broke the protocol on the link to {address!r}: {error}")


def from_outcome(state: object, what: str) -> errors.PenstockError:
    """Return the error for messages that were not accepted; `what` begins its text."""
    if isinstance(state, Rejected):
        kind = from_peer(state.error, f"{what} rejected")
        return kind if state.error is not None else errors.InvalidRequest(str(kind))
    if isinstance(state, Released):
        text = "the broker did not take them; send them again. An exchange releases messages that no binding matches"
        return errors.NotDelivered(f"{what} released: {text}")
    if isinstance(state, Modified):
        return errors.NotDelivered(f"{what} returned as undeliverable; send them again later")
    assert not isinstance(state, Accepted)
    return errors.PeerError(f"{what} settled without an outcome: it is unknown whether the broker has them")
