"""One of our connections, a peer written by hand, and the transcript of their frames."""

from __future__ import annotations

from typing import Any

from penstock.broker_core.amqp import Connection, ConnectionSettings, Role, events
from penstock.broker_core.amqp.composites import Composite
from penstock.broker_core.amqp.frames import AMQP_FRAME, SASL_FRAME, encode_frame, parse_frame, protocol_header
from penstock.broker_core.amqp.performatives import Attach, Begin, Flow, Open, Source, Target, Transfer
from penstock.broker_core.amqp.types import Symbol


def show(value: Any) -> str:
    if isinstance(value, Composite):
        inside = ", ".join(f"{f.name}={show(getattr(value, f.attribute))}" for f in value.FIELDS if _said(value, f))
        return f"{value.SYMBOL.split(':')[1]}({inside})"
    if isinstance(value, (bool, type(None))):
        return str(value).lower()
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, Symbol):
        return f":{value}"
    if isinstance(value, bytes):
        return f"b{value.decode('latin-1')!r}"
    if isinstance(value, tuple):
        return "[" + ", ".join(map(show, value)) + "]"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{show(k)}: {show(v)}" for k, v in value.items()) + "}"
    return repr(value)


def _said(value: Composite, field: Any) -> bool:
    item = getattr(value, field.attribute)
    return field.mandatory or (item is not None and item != () and item != field.default)


def show_event(event: events.Event) -> str:
    if isinstance(event, events.Delivered):
        inside = ", ".join(f"{d.id}:{d.tag!r} {len(d.payload)} octets{' settled' if d.settled else ''}" for d in event.deliveries)
        return f"Delivered on {event.link.name}: {inside}"
    if isinstance(event, events.Disposed):
        ids = [int(d.id) for d in event.deliveries]
        return f"Disposed {ids} {show(event.state)}{' settled' if event.settled else ''}"
    if isinstance(event, events.Violated):
        return f"Violated ({event.error.scope.value}) {event.error}"
    if isinstance(event, events.Flowed) and event.link is not None:
        link = event.link
        return f"Flowed on {link.name}: credit {link.link_credit}, count {link.delivery_count}, drain {str(link.drain).lower()}"
    if isinstance(event, (events.Closed, events.Ended, events.Detached)):
        return f"{type(event).__name__} {show(event.error) if event.error else 'without error'}"
    if isinstance(event, events.Authenticated):
        return f"Authenticated {event.user} by {event.mechanism}"
    if isinstance(event, events.AuthenticationFailed):
        return f"AuthenticationFailed: {event.reason}"
    return type(event).__name__


class Wire:
    """`peer` sends as the peer, `do` acts as the application. Every step is a line of `lines`."""

    def __init__(self, role: Role = Role.SERVER, sasl: Any = None, **settings: Any) -> None:
        self.lines: list[str] = []
        self.input = b""
        self.events: list[events.Event] = []
        self._sasl = sasl is not None
        required = settings.pop("sasl_required", True)
        self.us = Connection(role, ConnectionSettings(**{"container_id": "us", **settings}), sasl, sasl_required=required)
        self._sent()

    def note(self, text: str) -> None:
        self.lines.append(f"# {text}")

    def _show_octets(self, arrow: str, octets: bytes) -> None:
        position = 0
        while position < len(octets):
            if octets[position : position + 4] == b"AMQP":
                piece = octets[position : position + 8]
                self.lines.append(f"{arrow} header AMQP {'.'.join(map(str, piece[4:]))}")
            else:
                size = int.from_bytes(octets[position : position + 4], "big")
                piece = octets[position : position + size]
                kind = SASL_FRAME if piece[5] == 1 else AMQP_FRAME
                frame = parse_frame(piece, 0, size, kind)
                payload = f" + {len(frame.payload)} octets" if frame.payload else ""
                where = "sasl" if kind == SASL_FRAME else f"[{frame.channel}]"
                body = "(empty)" if frame.performative is None else show(frame.performative)
                self.lines.append(f"{arrow} {where} {body}{payload}")
            hexed = piece[:96].hex(" ", 4)
            self.lines.append(f"     {hexed}{f' … {len(piece)} in all' if len(piece) > 96 else ''}")
            position += len(piece)

    def _sent(self) -> None:
        self._show_octets("  <-", self.us.data_to_send())

    def octets(self, data: bytes, text: str | None = None) -> list[events.Event]:
        """Octets from the peer, unchanged. `text` describes octets that a parser cannot show."""
        if text is None:
            self._show_octets("->", data)
        else:
            self.lines += [f"-> {text}", f"     {data[:96].hex(' ', 4)}"]
        self.input += data
        new_events = self.us.receive_data(data)
        self.events += new_events
        self.lines += [f"   * {show_event(event)}" for event in new_events]
        self._sent()
        if self.us.finished:
            self.lines.append("  <- end of stream")
        return new_events

    def header(self, protocol_id: int = 0) -> list[events.Event]:
        return self.octets(protocol_header(protocol_id))

    def peer(self, *bodies: Composite | None, channel: int = 0, payload: bytes = b"") -> list[events.Event]:
        frames = [encode_frame(channel, b"" if body is None else body.encode(), payload) for body in bodies]
        return self.octets(b"".join(frames))

    def sasl(self, body: Composite) -> list[events.Event]:
        return self.octets(encode_frame(0, body.encode(), frame_type=SASL_FRAME))

    def do(self, text: str, action: Any) -> Any:
        self.lines.append(f"   ! {text}")
        result = action()
        self._sent()
        return result

    # --- the usual beginnings

    def opened(self, **fields: Any) -> Wire:
        self.header()
        self.peer(Open(**{"container_id": "peer", **fields}))
        self.do("open", self.us.open)
        return self

    def session(self, channel: int = 0, **fields: Any) -> Any:
        begin = {"next_outgoing_id": 0, "incoming_window": 100, "outgoing_window": 100, **fields}
        new_events = self.peer(Begin(**begin), channel=channel)
        session = new_events[-1].session  # type: ignore[union-attr]
        self.do("begin", session.begin)
        return session

    def receiver(self, credit: int = 10, mode: Any = None, **fields: Any) -> Any:
        """The peer attaches as a sender: our receiver."""
        attach = {"name": "in", "handle": 0, "role": False, "source": Source(address="a"), "target": Target(address="q")}
        new_events = self.peer(Attach(**{**attach, "initial_delivery_count": 0, **fields}))
        link = new_events[-1].link  # type: ignore[union-attr]
        remote = link.remote_attach
        self.do("attach", lambda: link.attach(source=remote.source, target=remote.target, **(mode or {})))
        if credit:
            self.do(f"grant({credit})", lambda: link.grant(credit))
        return link

    def sender(self, credit: int = 10, **fields: Any) -> Any:
        """The peer attaches as a receiver: our sender."""
        attach = {"name": "out", "handle": 0, "role": True, "source": Source(address="q"), "target": Target(address="a")}
        new_events = self.peer(Attach(**{**attach, **fields}))
        link = new_events[-1].link  # type: ignore[union-attr]
        remote = link.remote_attach
        self.do("attach", lambda: link.attach(source=remote.source, target=remote.target))
        if credit:
            self.flow(handle=link.remote_attach.handle, delivery_count=0, link_credit=credit)
        return link

    def flow(self, **fields: Any) -> list[events.Event]:
        base = {"next_incoming_id": 0, "incoming_window": 100, "next_outgoing_id": 0, "outgoing_window": 100}
        return self.peer(Flow(**{**base, **fields}))

    def transfer(self, number: int | None, tag: bytes | None, payload: bytes = b"m", **fields: Any) -> list[events.Event]:
        base = {"handle": 0, "delivery_id": number, "delivery_tag": tag, "message_format": 0}
        return self.peer(Transfer(**{**base, **fields}), payload=payload)
