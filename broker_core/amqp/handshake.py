"""The handshake before the first AMQP frame: protocol headers (2.2) and the SASL layer (5.3).

A server answers an unacceptable header with one that it accepts, and is finished; a client is finished without an answer. TLS by
header (5.2) is not offered.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from . import events
from .composites import Composite
from .errors import Condition, RemoteProtocolError
from .frames import AMQP_ID, HEADER_SIZE, SASL_FRAME, SASL_ID, encode_frame, frame_size, parse_frame, parse_protocol_header
from .frames import protocol_header as header
from .performatives import SASL_SYS_TEMP, SaslOutcome
from .sasl import SaslClient, SaslServer
from .settings import ConnectionSettings, Role


class HandshakeStep(NamedTuple):
    """`position` is the start of the rest; `failed` ends the connection."""

    position: int
    out: Sequence[bytes] = ()
    events: Sequence[events.Event] = ()
    failed: bool = False


class Handshake:
    """The handshake until it is `done`."""

    def __init__(
        self, role: Role, settings: ConnectionSettings, sasl: SaslServer | SaslClient | None, sasl_required: bool
    ) -> None:
        self._server = role is Role.SERVER
        self._settings = settings
        self._sasl = sasl
        self._required = sasl_required and sasl is not None
        self._in_sasl = False
        self._sasl_passed = False
        self._actions: list[str] = []
        self.done = False

    def start(self) -> list[bytes]:
        return [] if self._server else [self._header()]

    def take_actions(self) -> list[str]:
        actions, self._actions = self._actions, []
        return actions

    def _header(self) -> bytes:
        if self._sasl is not None and not self._sasl_passed:
            return header(SASL_ID)
        self._actions.append("s:header")
        return header(AMQP_ID)

    def receive(self, buffer: bytes, position: int) -> HandshakeStep:
        try:
            return self._frame(buffer, position) if self._in_sasl else self._on_header(buffer, position)
        except RemoteProtocolError as error:
            return HandshakeStep(position, events=[events.Violated(error)], failed=True)

    def _on_header(self, buffer: bytes, position: int) -> HandshakeStep:
        octets = buffer[position : position + HEADER_SIZE]
        if len(octets) < HEADER_SIZE and header(octets[4] if len(octets) > 4 else 0)[: len(octets)] == octets:
            return HandshakeStep(position)
        protocol = parse_protocol_header(octets)
        wanted = SASL_ID if self._sasl is not None and not self._sasl_passed else AMQP_ID
        unsecured = wanted == SASL_ID and protocol == AMQP_ID and self._server and not self._required
        if protocol != wanted and not unsecured:
            error = RemoteProtocolError(Condition.FRAMING_ERROR, f"the protocol header {octets!r}")
            return HandshakeStep(position, [header(wanted)] if self._server else [], [events.Violated(error)], failed=True)
        after = position + HEADER_SIZE
        if unsecured:
            self._sasl = None
        self._in_sasl, self.done = protocol == SASL_ID, protocol == AMQP_ID
        if self.done:
            self._actions.append("r:header")
        out = [self._header()] if self._server else []
        if self._in_sasl and self._sasl is not None:
            out += self._encoded(self._sasl.start())
        return HandshakeStep(after, out)

    @staticmethod
    def _encoded(bodies: list[Composite]) -> list[bytes]:
        return [encode_frame(0, body.encode(), frame_type=SASL_FRAME) for body in bodies]

    def _frame(self, buffer: bytes, position: int) -> HandshakeStep:
        assert self._sasl is not None
        if len(buffer) - position < 4:
            return HandshakeStep(position)
        size = frame_size(buffer, position, self._settings.sasl_frame_size)
        if len(buffer) - position < size:
            return HandshakeStep(position)
        body = parse_frame(buffer, position, size, SASL_FRAME).performative
        assert isinstance(body, Composite)
        sasl, after = self._sasl, position + size
        out = self._encoded(sasl.receive(body))
        if not sasl.done:
            return HandshakeStep(after, out)
        if sasl.reason is not None:
            failure = events.AuthenticationFailed(sasl.code, sasl.reason)
            return HandshakeStep(after, out, [failure], failed=True)
        self._in_sasl, self._sasl_passed = False, True
        if not self._server:
            out.append(self._header())
        return HandshakeStep(after, out, [events.Authenticated(sasl.user, sasl.mechanism or "")])

    def give_up(self) -> list[bytes]:
        """Return the SASL outcome for a peer whose login took too long (5.3.3.6)."""
        if not (self._server and self._in_sasl):
            return []
        return self._encoded([SaslOutcome(code=SASL_SYS_TEMP)])
