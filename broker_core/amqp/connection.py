"""The connection (2.2 to 2.4). The caller passes the octets, and closes the transport when the connection is `finished`.

An error of the peer is answered after our own open, begin or attach. After our close, or an error, all further input is dropped
(2.4.6).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator, Sequence

from . import events, states
from .composites import Composite, Invalid
from .errors import Condition, FieldError, FramingError, LocalProtocolError, ProtocolError, RemoteProtocolError, Scope
from .fastpath import Dispositions, Scanner, TransferRun, scan_plainly
from .frames import MIN_MAX_FRAME_SIZE, Frame, Reassembly, encode_frame, frame_size
from .handshake import Handshake
from .idle import IdleTimers
from .intake import take_dispositions, take_run
from .links import Freed, as_error, not_allowed
from .performatives import Begin, Close, End, Error, Open
from .sasl import SaslClient, SaslServer
from .sessions import Session
from .settings import ConnectionSettings, Role
from .states import ConnectionState, LinkState
from .transactions import Coordinated

_C = ConnectionState
_READ_ENOUGH = (_C.CLOSE_RCVD_UNANSWERED, _C.CLOSE_RCVD, _C.END)  # after the peer's close (2.4.6)
_DISCARDS = (_C.DISCARDING, _C.VIOLATED, _C.VIOLATED_UNANSWERED)  # only the peer's close is read


class Connection:
    """One end of one connection.

    A server admits peers without SASL only if `sasl_required` is False. `fast=False` decodes frames one by one (for tests).
    """

    def __init__(
        self,
        role: Role,
        settings: ConnectionSettings,
        sasl: SaslServer | SaslClient | None = None,
        *,
        sasl_required: bool = True,
        fast: bool = True,
    ) -> None:
        self.role = role
        self.settings = settings
        self.state = _C.START
        self.local_open: Open | None = None
        self.remote_open: Open | None = None
        self.coordinated = Coordinated()
        self.sessions: dict[int, Session] = {}
        self.remote_sessions: dict[int, Session] = {}
        self._ended = Freed()
        self.unsettled_sent = 0  # deliveries in `outgoing` of all sessions
        self.unfinished_size = 0  # octets of incomplete deliveries
        self.credit_overrun = 0  # deliveries beyond credit that a link takes from a peer that miscounts
        #: Called with `unfinished_size` when it changes. Returns False above a limit over several connections.
        self.may_keep: Callable[[int], bool] = lambda octets: True
        self.names_per_session = False  # a link's name is unique in its session, not in its container (2.6.1)
        self._out: list[bytes] = []
        self._received = Reassembly()
        self._dead = False
        self._deaf = False  # the start of the next frame is unknown
        self._has_opened = False  # the peer's open was reported
        self._violation: RemoteProtocolError | None = None  # our close has to report it
        self._scan = Scanner().scan if fast else scan_plainly
        self._idle = IdleTimers()
        self._handshake = Handshake(role, settings, sasl, sasl_required)
        self._leave_handshake(self._handshake.start())

    @property
    def finished(self) -> bool:
        """True when nothing more will be read or written, except `data_to_send`. Then close the transport."""
        return self._dead or self.state is _C.END or (self._deaf and self.state is _C.DISCARDING)

    @property
    def _reads(self) -> bool:
        return not (self._dead or self._deaf or self.state in _READ_ENOUGH)

    @property
    def may_send(self) -> bool:
        return not self._dead and "s:frame" in states.CONNECTION[self.state]

    @property
    def remote_max_frame_size(self) -> int:
        return MIN_MAX_FRAME_SIZE if self.remote_open is None else self.remote_open.max_frame_size

    @property
    def has_data_to_send(self) -> bool:
        return bool(self._out)

    def data_to_send(self) -> bytes:
        data = b"".join(self._out)
        self._out.clear()
        for session in self.sessions.values():
            session.unannounced = 0  # the peer may use the renewed window
        return data

    def receive_data(self, data: bytes, now: float | None = None) -> list[events.Event]:
        """Return the events in these octets, which may end inside a frame. `now`: seconds of a clock that only moves forward."""
        return list(self.events_in(data, now))

    def events_in(self, data: bytes, now: float | None = None) -> Iterator[events.Event]:
        """Iterate over the events of `receive_data`. The caller must take all of them. It can answer an open or begin before the
        following frames are handled.
        """
        if not (data and self._reads):
            return
        buffer = self._received.add(data)
        if buffer is None:
            return
        position = yield from self._process(buffer)
        self._received.keep(buffer[position:], framed=self._handshake.done)
        if position:
            self._idle.received(now)

    def receive_eof(self) -> list[events.Event]:
        if self.finished:
            return []
        self._dead = True
        return [events.Lost()]

    def forget_all(self) -> None:
        """Forget everything that a link kept for a resume refers to, except the link's `unsettled`."""
        self._out.clear()
        self._received.clear()
        self._scan = scan_plainly
        for session in {*self.sessions.values(), *self.remote_sessions.values()}:
            session.forget_all()
        self.sessions.clear()
        self.remote_sessions.clear()

    def _process(self, buffer: bytes) -> Generator[events.Event, None, int]:
        position = 0
        while self._reads:
            before = position
            if not self._handshake.done:
                step = self._handshake.receive(buffer, position)
                position = step.position
                self._leave_handshake(step.out)
                if step.failed:
                    self._dead = True
                yield from step.events
            else:
                position = yield from self._frames(buffer, position)
            if position == before:
                break
        return position if self._reads else len(buffer)

    def _leave_handshake(self, out: Sequence[bytes]) -> None:
        self._out += out
        for action in self._handshake.take_actions():
            self.state = states.advance(states.CONNECTION, self.state, action)

    def _frames(self, buffer: bytes, position: int) -> Generator[events.Event, None, int]:
        opened = self.remote_open is not None
        limit = self.settings.max_frame_size if opened else self.settings.first_frame_size
        items, after, error = self._scan(buffer, position, limit, not opened)
        for item in items:
            if not self._reads:
                return after
            happened = self._on_frame(item) if isinstance(item, Frame) else self._on_run(item)
            yield from self.coordinated.take()
            yield from happened
        if error is not None and self._reads:
            if isinstance(error, FramingError):
                self._deaf = True
                yield from self._violated(error)
                return after
            if self.state not in _DISCARDS and self.state is not _C.CLOSE_SENT:
                yield from self._violated(error)
            after += frame_size(buffer, after, limit)
        return after

    # --- our side

    def open(self) -> None:
        state = states.advance(states.CONNECTION, self.state, "s:open")
        s = self.settings
        mine = Open(
            container_id=s.container_id,
            hostname=s.hostname,
            max_frame_size=s.max_frame_size,
            channel_max=s.channel_max,
            idle_time_out=s.idle_time_out,
            offered_capabilities=s.offered_capabilities,
            properties=s.properties,
        )
        self._write(0, mine)
        self.state, self.local_open = state, mine
        if self._violation is not None and self.settings.answers_violations:
            self.answer_violation()

    def begin(self, *, first_outgoing_id: int = 0) -> Session:
        session = Session(self, first_outgoing_id)
        session.begin()
        return session

    def close(self, error: Error | None = None) -> None:
        action = "s:error" if error is not None and "s:error" in states.CONNECTION[self.state] else "s:close"
        state = states.advance(states.CONNECTION, self.state, action)
        if self.state is not _C.CLOSE_SENT:
            self._write(0, Close(error=error))
        self.state, self._violation = state, None

    def refuse(self, error: RemoteProtocolError) -> bool:
        """Refuse the peer's open with a SASL outcome, or an open and a close. Return True if a frame was sent."""
        if self.finished or self.local_open is not None:
            return False
        if self._handshake.done:
            self._violated(error)
            self.answer_violation()
        else:
            self._out += self._handshake.give_up()
            self._dead = True
        return bool(self._out)

    # --- for the sessions

    def send(self, channel: int, performative: Composite, payload: bytes = b"") -> None:
        states.advance(states.CONNECTION, self.state, "s:frame")
        self._write(channel, performative, payload)

    def send_raw(self, pieces: list[bytes]) -> None:
        states.advance(states.CONNECTION, self.state, "s:frame")
        self._out += pieces
        self._idle.sent()

    def _write(self, channel: int, performative: Composite, payload: bytes = b"") -> None:
        if self._dead:
            raise LocalProtocolError("the connection is finished")
        frame = encode_frame(channel, performative.encode(), payload)
        if len(frame) > self.remote_max_frame_size:
            raise LocalProtocolError(
                f"{Condition.FRAME_SIZE_TOO_SMALL}: {performative.SYMBOL} takes {len(frame)} octets,"
                f" the peer takes {self.remote_max_frame_size}"
            )
        self._out.append(frame)
        self._idle.sent()

    def take_channel(self, session: Session) -> int:
        # Before the peer's open only channel 0 exists (2.4.1).
        limit = 0 if self.remote_open is None else min(self.settings.channel_max, self.remote_open.channel_max)
        channel = next(number for number in range(len(self.sessions) + 1) if number not in self.sessions)
        if channel > limit:
            raise LocalProtocolError(f"{limit + 1} sessions are all that channel-max allows")
        self.sessions[channel] = session
        return channel

    def release_channel(self, session: Session) -> None:
        if self.sessions.get(session.local_channel) is session:
            del self.sessions[session.local_channel]

    def steal(self, name: str, role: bool, by: Session) -> list[events.Event]:
        for session in [by] if self.names_per_session else self.sessions.values():
            for link in session.handles.named.get((role, name), ()):
                if link.state is LinkState.ATTACHED and session.may_send:
                    link.detach(closed=True, error=Error(condition=Condition.STOLEN, description="attached again"))
                    return [events.Stolen(link)]
        return []

    # --- the peer's side

    def _on_frame(self, frame: Frame) -> list[events.Event]:
        performative = frame.performative
        kind = performative.cls if isinstance(performative, Invalid) else type(performative)
        if self.state is _C.CLOSE_SENT and kind is not Close:
            return []
        try:
            if performative is None:
                if self.remote_open is None and self.state not in _DISCARDS:
                    raise not_allowed("an empty frame before the open", Scope.CONNECTION)
                return []
            if isinstance(performative, Open):
                return self._on_open(performative, frame.channel)
            if isinstance(performative, Close):
                return self._on_close(performative)
            if isinstance(performative, Invalid) and kind in (Open, Close):
                return self._on_invalid(performative)
            self.state = states.advance(states.CONNECTION, self.state, "r:frame")
            if self.state in _DISCARDS:
                return []
            return self._on_channel(frame.channel, performative, frame.payload)
        except ProtocolError as error:
            return self._violated(error)

    def _on_run(self, run: TransferRun | Dispositions) -> list[events.Event]:
        session = self.remote_sessions.get(run.channel)
        if self.state is not _C.OPENED or session is None:
            return [event for frame in run.frames() for event in ([] if self.finished else self._on_frame(frame))]
        return take_run(session, run) if isinstance(run, TransferRun) else take_dispositions(session, run)

    def guarded(self, session: Session, performative: Composite | Invalid, payload: bytes) -> list[events.Event]:
        try:
            return self._in_session(session, performative, payload)
        except ProtocolError as error:
            return self._violated(error)

    def _in_session(self, session: Session, performative: Composite | Invalid, payload: bytes) -> list[events.Event]:
        if self.state in _DISCARDS:
            return []
        try:
            return session.on_frame(performative, payload)
        except RemoteProtocolError as error:
            if error.scope is Scope.CONNECTION:
                raise
            return [session.violated(error)]

    def _on_open(self, theirs: Open, channel: int) -> list[events.Event]:
        state = states.advance(states.CONNECTION, self.state, "r:open")
        if channel != 0:
            raise RemoteProtocolError(Condition.FRAMING_ERROR, f"an open on channel {channel}")
        if theirs.max_frame_size < MIN_MAX_FRAME_SIZE:
            raise FieldError(f"a max-frame-size of {theirs.max_frame_size}")
        self.state, self.remote_open = state, theirs
        if state in _DISCARDS or state is _C.CLOSE_SENT:
            return []
        asked = theirs.idle_time_out or None
        if asked is not None and asked < self.settings.min_remote_idle_time_out:
            raise not_allowed(
                f"an idle-time-out of {asked} ms; at least {self.settings.min_remote_idle_time_out} ms are needed",
                Scope.CONNECTION,
            )
        self._idle.agree(self.settings.idle_time_out, asked)
        self._has_opened = True
        return [events.Opened(theirs)]

    def _on_close(self, theirs: Close) -> list[events.Event]:
        silent = self.state in _DISCARDS
        self.state = states.advance(states.CONNECTION, self.state, "r:close")
        return [] if silent else [events.Closed(theirs.error)]

    def _on_invalid(self, performative: Invalid) -> list[events.Event]:
        reported = [] if self.state in _DISCARDS else self._violated(FieldError(performative.description))
        if performative.cls is Close:
            self.state = states.advance(states.CONNECTION, self.state, "r:close")
        return reported

    def _on_channel(self, channel: int, performative: Composite | Invalid, payload: bytes) -> list[events.Event]:
        if channel > self.settings.channel_max:
            raise RemoteProtocolError(Condition.FRAMING_ERROR, f"channel {channel} beyond channel-max")
        session = self.remote_sessions.get(channel)
        kind = performative.cls if isinstance(performative, Invalid) else type(performative)
        if isinstance(performative, Begin):
            return self._on_begin(channel, session, performative)
        if isinstance(performative, Invalid) and kind is Begin:
            raise FieldError(performative.description)
        if session is None and kind is End and channel in self._ended:
            return []  # a second one: clients answer an end that crossed theirs
        if session is None:
            raise not_allowed(f"{kind.SYMBOL} on channel {channel}, which has no session", Scope.CONNECTION)
        if kind is End and isinstance(performative, End | Invalid):
            reported = session.on_end(performative)
            del self.remote_sessions[channel]
            self._ended.add(channel)
            return reported
        return self._in_session(session, performative, payload)

    def _on_begin(self, channel: int, session: Session | None, begin: Begin) -> list[events.Event]:
        if session is not None:
            raise RemoteProtocolError(Condition.ILLEGAL_STATE, f"a second begin on channel {channel}")
        if begin.remote_channel is None:
            session = Session(self)
        else:
            session = self.sessions.get(begin.remote_channel)
            if session is None or session.remote_channel is not None:
                raise FieldError(f"a begin that answers channel {begin.remote_channel}, where none is awaited")
        event = session.on_begin(begin, channel)
        self.remote_sessions[channel] = session
        self._ended.pop(channel, None)
        return [event]

    def _violated(self, error: ProtocolError) -> list[events.Event]:
        """Discard the peer's further input (2.4.6), and answer with a close.

        The close leaves here if the application does not know of the connection, and will not send our open. After a local error
        the peer's limits do not allow an answer.
        """
        if not isinstance(error, RemoteProtocolError):
            error = not_allowed(f"a frame that cannot be answered: {error}", Scope.CONNECTION)
        state = states.CONNECTION[self.state].get("r:error")
        if state is None:  # no frame can be sent any more
            self._dead = True
        else:
            self.state = state
            self._violation = None if state is _C.DISCARDING else error  # our close was sent before
            unknown = self.role is Role.SERVER and not self._has_opened
            if unknown or (self.settings.answers_violations and self.may_send):
                self.answer_violation()
        return [events.Violated(error)]

    def answer(self, violated: events.Violated) -> None:
        """Answer an error with a detach, end or close, after an attach, begin or open if ours is missing. Raises
        LocalProtocolError if the peer's limits do not allow it.
        """
        (violated.link or violated.session or self).answer_violation()

    def answer_violation(self) -> None:
        if self._violation is None or self.finished:
            return
        error = as_error(self._violation)
        try:
            if not self.may_send:
                self._violation = None
                self.open()
            self.close(error)
        except LocalProtocolError:
            self._dead = True

    def tick(self, now: float) -> list[events.Event]:
        """Return the events of the time `now`, in seconds, and send a due heartbeat."""
        if self.finished:
            return []
        if self._idle.expired(now) and self.state is _C.OPENED:
            self.close(Error(condition=Condition.RESOURCE_LIMIT_EXCEEDED, description="idle time-out"))
            return [events.TimedOut()]
        if self._idle.heartbeat_due(now) and self.may_send:
            self._out.append(encode_frame(0, b""))
            self._idle.sent(now)
        return []

    def next_tick(self, now: float) -> float | None:
        return None if self.finished else self._idle.next_deadline(now)
