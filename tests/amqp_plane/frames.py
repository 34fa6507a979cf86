"""Frames for tests, and their readable form."""

from __future__ import annotations

from typing import Any

from penstock.broker_core.amqp import Message, decode_message
from penstock.broker_core.amqp.composites import Composite
from penstock.broker_core.amqp.errors import RemoteProtocolError
from penstock.broker_core.amqp.performatives import (
    RECEIVER,
    SENDER,
    Attach,
    Begin,
    Detach,
    Disposition,
    Flow,
    Header,
    Open,
    Source,
    Target,
    Transfer,
)
from penstock.broker_core.amqp.types import Symbol

from ..amqp.wire import show


def begin(**fields: Any) -> Begin:
    return Begin(**{"next_outgoing_id": 0, "incoming_window": 1000, "outgoing_window": 1000, **fields})


def sends(queue: str | None = "q", handle: int = 0, **fields: Any) -> Attach:
    usual: dict[str, Any] = {"name": f"to {queue}", "source": Source(address="here"), "target": Target(address=queue)}
    return Attach(**{"handle": handle, "role": SENDER, "initial_delivery_count": 0, **usual, **fields})


def receives(queue: str | None = "q", handle: int = 0, **fields: Any) -> Attach:
    usual: dict[str, Any] = {"name": f"from {queue}", "source": Source(address=queue), "target": Target(address="here")}
    return Attach(**{"handle": handle, "role": RECEIVER, **usual, **fields})


def flow(handle: int | None, credit: int | None = None, count: int = 0, **fields: Any) -> Flow:
    usual = {"next_incoming_id": 0, "incoming_window": 1000, "next_outgoing_id": 0, "outgoing_window": 1000}
    link = {} if handle is None else {"handle": handle, "delivery_count": count, "link_credit": credit}
    return Flow(**{**usual, **link, **fields})


def transfer(number: int, payload: bytes | None = None, handle: int = 0, **fields: Any) -> tuple[Transfer, bytes]:
    """Build a delivery in one frame. By default, `payload` is a message whose body is m0, m1 …"""
    usual = {"handle": handle, "delivery_id": number, "delivery_tag": b"t%d" % number, "message_format": 0}
    return Transfer(**{**usual, **fields}), message(b"m%d" % number) if payload is None else payload


def more(payload: bytes, handle: int = 0, **fields: Any) -> tuple[Transfer, bytes]:
    """Build a further frame of a delivery."""
    return Transfer(handle=handle, **fields), payload


def message(body: bytes, **sections: Any) -> bytes:
    return Message(data=[body], **sections).encode()


def says(state: Any, first: int, last: int | None = None, *, settled: bool = True) -> Disposition:
    """Build a receiver's disposition."""
    return Disposition(role=RECEIVER, first=first, last=last, settled=settled, state=state)


def detach(handle: int = 0, *, closed: bool = True) -> Detach:
    return Detach(handle=handle, closed=closed)


# ---- readable frames

_LONG = 64  # shown bytes of a body


def shown(body: Composite | None, payload: bytes = b"") -> str:
    if isinstance(body, Open):
        body = _steady(body)
    text = "(empty)" if body is None else show(body)
    return f"{text} + {_message(payload)}" if payload else text


def _steady(body: Open) -> Open:
    """Remove parts that differ from broker to broker."""
    names = {"version": "VERSION", "flight-token": "TOKEN"}
    properties = {key: names.get(str(key), value) for key, value in (body.properties or {}).items()}
    container = "BROKER" if body.container_id.startswith("penstock-") else body.container_id
    fields = {item.attribute: getattr(body, item.attribute) for item in body.FIELDS}
    return Open(**{**fields, "container_id": container, "properties": properties or None})


def _message(payload: bytes) -> str:
    try:
        decoded = decode_message(payload)
    except RemoteProtocolError:
        return f"{len(payload)} octets"
    parts = []
    header = decoded.header
    if header is not None:
        parts.append(show(header))
    for name in ("delivery_annotations", "message_annotations", "application_properties", "footer"):
        value = getattr(decoded, name)
        if value is not None:
            parts.append(f"{name.replace('_', '-')}={show(value)}")
    if decoded.properties is not None:
        parts.append(show(decoded.properties))
    parts += [show(data) if len(data) <= _LONG else f"{len(data)} octets of data" for data in decoded.data]
    if decoded.has_value:
        parts.append(f"value={show(decoded.value)}")
    return " ".join(parts) or "an empty message"


def header_of(payload: bytes) -> Header:
    header = decode_message(payload).header
    return Header() if header is None else header


def annotations_of(payload: bytes) -> dict[str, Any]:
    return {str(key): value for key, value in (decode_message(payload).message_annotations or {}).items()}


def symbol(text: str) -> Symbol:
    return Symbol(text)
