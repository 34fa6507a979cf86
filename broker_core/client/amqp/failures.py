"""Penstock's errors for the peer's conditions, outcomes and silence."""

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


class NoAnswer(errors.PeerError):
    """A server that has not answered in time; its answer may still come."""


def no_answer(name: str, limit_s: float, problem: str) -> NoAnswer:
    return NoAnswer(
        f"{name} has not answered within {limit_s:g} s: {problem}. It may be overloaded or not a broker at all; try again, or"
        " raise the time limit"
    )


def from_peer(error: Error | None, event: str) -> errors.PenstockError:
    """Return the error for the peer's condition. Its text begins with `event` ("the broker closed the connection")."""
    if error is None:
        return errors.PeerError(event)
    text = f"{event}: {error.description} ({error.condition})" if error.description else f"{event}: {error.condition}"
    return _KINDS.get(error.condition, errors.PeerError)(text)


def from_violation(error: RemoteProtocolError, address: str, largest: int) -> errors.PenstockError:
    if error.condition in (Condition.MESSAGE_SIZE_EXCEEDED, Condition.RESOURCE_LIMIT_EXCEEDED):
        return errors.ResourceLimit(
            f"the broker sends {error.description} from {address!r}, where this client takes {largest:,} octets in one: if"
            " messages there are meant to be so large, raise max_message_octets (Spark: the option maxMessageBytes); if not, take"
            " them from there with another client"
        )
    return errors.PeerError(f"the broker broke the protocol on the link to {address!r}: {error}")


def from_outcome(state: object, messages: str) -> errors.PenstockError:
    """Return the error for messages that were not accepted. Its text begins with `messages` ("a message to 'orders' was")."""
    if isinstance(state, Rejected):
        kind = from_peer(state.error, f"{messages} rejected")
        return kind if state.error is not None else errors.InvalidRequest(str(kind))
    if isinstance(state, Released):
        text = "the broker did not take them; send them again. An exchange releases messages that no binding matches"
        return errors.NotDelivered(f"{messages} released: {text}")
    if isinstance(state, Modified):
        return errors.NotDelivered(f"{messages} returned as undeliverable; send them again later")
    assert not isinstance(state, Accepted)
    return errors.PeerError(f"{messages} settled without an outcome: it is unknown whether the broker has them")
