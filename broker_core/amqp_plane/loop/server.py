"""The AMQP plane: an event loop in a thread of its own, its listeners, its limits, its clock."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import selectors
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from functools import partial
from typing import TYPE_CHECKING, Any

from ... import __version__, errors
from ...amqp import Condition, Settings
from ...amqp.performatives import Error
from ...engine.columns.states import Cause
from ...logs import counted
from ...security.log_limit import LogLimit
from ...settings.listeners import in_url
from ..connections import listing, revocation
from ..connections.containers import SOLE, Containers
from ..connections.transport import Wire
from ..connections.unfinished import TIMEOUT_S, Unfinished
from ..links.attaching import DELAYED_DELIVERY, SHARED_SUBS
from ..links.conditions import Refusal
from ..links.deliveries import messages_of
from ..links.detached import Detached
from ..links.sender_credit import SenderCredit
from .accepting import Acceptor, bound
from .limits import Limits
from .passes import Passes

if TYPE_CHECKING:
    import ssl

    from ...reading.records import OnDamage
    from ...reading.slices import BlockSlice
    from ...security.access import Access
    from ...selectors import Selector
    from ...service.bitmaps import View
    from ...service.broker import BrokerService
    from ...settings.listeners import Listener
    from ..connections.peer import Peer

log = logging.getLogger("penstock.amqp")
log.addFilter(LogLimit())  # who is refused may be refused a thousand times a second

TICK_S = 0.25  # how exact heartbeats and time-outs are
SHORTEST_HEARTBEAT_MS = 1000  # an idle time-out that a peer may ask of us: half of it must be several ticks
FIRST_FRAME_BYTES = 8192  # an open before we know the peer: some clients put more than 512 octets of properties there
STOP_GRACE_S = 2.0  # for peers to answer our close
PASSWORD_THREADS = 2  # that check passwords, which cost time on purpose; each connection waits for at most one check
UNFINISHED_MESSAGES = 2  # of the largest size, that one connection may have half sent, over all its links
DESCRIBED_AT_ONCE = 32  # connections, for operators, before the sockets have their turn
ANSWER_S = 10.0  # for which an operator waits for the loop
DOOMED = 64  # connections beyond the limit that are still told so, each with an open and a close


class Ready(selectors.DefaultSelector):
    """A selector that knows how many sockets the loop is about to serve."""

    count = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """Select as any selector does, and note the number of ready sockets in `count`."""
        found = super().select(timeout)
        self.count = len(found)
        return found


class AmqpPlane:
    """The plane: it listens from construction until `close`. `flight` is where the Flight plane is: (scheme, port).
    `connections`: fewer than the settings allow, if there are not enough file descriptors.

    Raises InvalidRequest when an address cannot be listened on.
    """

    def __init__(
        self,
        broker: BrokerService,
        listeners: Sequence[Listener],
        *,
        access: Access,
        tls_context: Callable[[], ssl.SSLContext] | None,
        flight: tuple[str, int] | None,
        connections: int | None = None,
    ) -> None:
        self.broker = broker
        self.access = access
        self.limits = Limits.of(broker.settings, connections)
        self.nodes = broker.nodes
        self.containers = Containers()
        self.passwords = ThreadPoolExecutor(PASSWORD_THREADS, "penstock-amqp-login")
        self._tls_context = tls_context
        self._flight = flight
        self._listeners = tuple(listeners)
        self._wires: set[Wire] = set()
        self._acceptors: list[Acceptor] = []
        self._stopping = False
        self._users = access.generation  # of the users file, when the peers were last looked at
        self.ready = Ready()
        self._loop = asyncio.SelectorEventLoop(self.ready)
        self._tick_at = self._loop.time()  # when the next look at all peers is due
        self.sender_credit = SenderCredit(broker, self.call)
        self.passes = Passes(broker, self._loop, self.sender_credit.look)
        self.detached = Detached(self._loop, self.limits)
        self.unfinished = Unfinished(self.limits.message_bytes, self.now)
        self.protocol = self._protocol()
        self.urls: list[str] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-amqp", daemon=True)
        self._thread.start()
        try:
            self._run(self._listen())
        except OSError as error:
            self.close()
            raise errors.InvalidRequest(f"cannot listen for AMQP: {error}") from error
        broker.connections.register(self)

    def _protocol(self) -> Settings:
        limits = self.limits
        return Settings(
            container_id=f"penstock-{self.broker.broker_id}",
            max_frame_size=limits.frame_bytes,
            first_frame_size=min(FIRST_FRAME_BYTES, limits.frame_bytes),
            channel_max=limits.sessions - 1,
            handle_max=limits.links - 1,
            idle_time_out=int(limits.idle_timeout_s * 500),  # we give up after twice that (2.4.5)
            min_remote_idle_time_out=SHORTEST_HEARTBEAT_MS,
            max_message_size=limits.message_bytes,
            max_unfinished_size=UNFINISHED_MESSAGES * limits.message_bytes,
            answers_violations=False,  # a peer is told behind the answers to what it sent before
            errant_link_ends_session=False,
            offered_capabilities=("ANONYMOUS-RELAY", SOLE, SHARED_SUBS, DELAYED_DELIVERY),
            properties={"product": "Penstock", "version": __version__},
        )

    def call(self, function: Callable[[], None]) -> None:
        """Have the loop call `function`, from any thread; nothing happens when the plane has stopped."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    def count_connections(self) -> int:
        """Return how many connections are open."""
        return len(self._wires)

    def _run(self, coroutine: Any) -> Any:
        future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result()

    async def _listen(self) -> None:
        for listener in self._listeners:
            sockets, port = bound(listener.host.strip("[]"), listener.port)
            acceptor = Acceptor(self._loop, sockets, partial(Wire, self, listener), self._starved)
            self._acceptors.append(acceptor)
            acceptor.start()
            host = listener.host if listener.host not in ("0.0.0.0", "::") else socket.gethostname()
            self.urls.append(f"{listener.scheme}://{in_url(host)}:{port}")
        self._tick()

    def _starved(self, reason: str) -> None:
        self.broker.connections.cannot_accept("AMQP", reason)

    # --- connections

    def now(self) -> float:
        """Tell the time in seconds, for all time-outs of the plane: a peer is not silent while we stand still."""
        return self.broker.uptime_s()

    def wall_ms(self) -> int:
        """Return the broker's wall-clock time, in milliseconds since 1970."""
        return self.broker.wall_ms()

    def enter(self, wire: Wire) -> bool:
        """Take in an accepted socket. Returns False when there are so many that not even an answer is affordable."""
        if self._stopping or len(self._wires) >= self.limits.connections + DOOMED:
            there = counted(len(self._wires), "connection")
            log.warning("%s: turned away, %s open", wire.address, there, extra={"peer": wire.address})
            return False
        self._wires.add(wire)
        return True

    def admit(self, peer: Peer) -> None:
        """Let a peer open. Raises Refusal beyond a limit."""
        peer.wire.opened()
        if len(self._wires) > self.limits.connections:
            raise Refusal(Condition.RESOURCE_LIMIT_EXCEEDED, f"{self.limits.connections} connections are open, the limit")
        most = self.limits.connections_per_user
        if self.containers.count(peer.user) >= most:
            raise Refusal(Condition.RESOURCE_LIMIT_EXCEEDED, f"user {peer.user!r} has {most} connections, the limit")

    def left(self, peer: Peer) -> None:
        """Forget a peer whose connection has gone; its container and its limits are free for others."""
        self.containers.leave(peer)
        self.unfinished.forget(peer)
        self.passes.forget(peer)

    def leave(self, wire: Wire) -> None:
        """Take out a socket that is closed: it no longer counts among the connections."""
        self._wires.discard(wire)

    def tls_context(self) -> ssl.SSLContext:
        """Return the TLS context for the next connection; for listeners with TLS only."""
        assert self._tls_context is not None  # a listener with TLS was checked to have a certificate
        return self._tls_context()

    # --- what operators ask (see `service.connections`)

    def connections(self) -> list[dict[str, Any]]:
        """Describe the connections that have opened. From another thread."""
        found: list[dict[str, Any]] = self._answer(self._described())
        return found

    async def _described(self) -> list[dict[str, Any]]:
        found, wall_us, groups = [], self.broker.wall_ms() * 1000, listing.HeldGroups(self.broker.nodes)
        for number, wire in enumerate(list(self._wires), 1):
            described = listing.described(wire, self.now(), wall_us, groups)
            if described is not None:
                found.append(described)
            if number % DESCRIBED_AT_ONCE == 0:
                await asyncio.sleep(0)  # the sockets have their turn
        return found

    def slow_consumers(self) -> Counter[str]:
        """Count slow consumers by queue. From another thread."""
        found: Counter[str] = self._answer(self._slow())
        return found

    async def _slow(self) -> Counter[str]:
        found: Counter[str] = Counter()
        for number, wire in enumerate(list(self._wires), 1):
            found.update(listing.slow(wire, self.now()))
            if number % DESCRIBED_AT_ONCE == 0:
                await asyncio.sleep(0)
        return found

    def close_connection(self, identifier: str, reason: str) -> bool:
        """Close a connection, and tell its peer why; what it holds goes back. False where it is gone. From another thread."""
        return bool(self._answer(self._close_one(identifier, reason)))

    async def _close_one(self, identifier: str, reason: str) -> bool:
        for wire in self._wires:
            if listing.identifier(wire) == identifier and wire.peer is not None:
                error = Error(condition=Condition.CONNECTION_FORCED, description=reason)
                wire.peer.close(error, for_good=True, cause=Cause.LINK_CLOSED)
                return True
        return False

    def _answer(self, coroutine: Any) -> Any:
        """Carry out a coroutine in the loop, and wait for its end. Raises ResourceLimit when it does not come in time."""
        try:
            future: Future[Any] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            raise errors.ResourceLimit("the broker stops") from None
        try:
            return future.result(ANSWER_S)
        except FutureTimeout:
            future.cancel()
            raise errors.ResourceLimit(f"the AMQP plane has not answered within {ANSWER_S:g} s: try again") from None

    # --- what links ask (see `ports.Host`)

    def create_on_use(self, name: str, user: str) -> None:
        """Make the queue or exchange of this name, if there is none and a policy makes it with its first use."""
        self.broker.create_on_use(name, user)

    @property
    def checks_user_id(self) -> bool:
        """Say whether the property user-id of a message has to be the user who sends it."""
        return self.limits.check_user_id and self.access.enforced

    def view(self, queue: str, selector: Selector) -> View:
        """Read what is known now of the messages that a selector matches, for one command."""
        return self.broker.matching.view(queue, selector)

    def hints(self, queue: str, selector: Selector) -> list[str]:
        """Return hints for names in the selector that may be meant as fields."""
        return self.broker.matching.hints(queue, selector)

    def messages_of(self, block_slice: BlockSlice, damaged: OnDamage) -> Iterator[tuple[list[bytes], list[bytes] | Exception]]:
        """Read the messages of a slice as AMQP has them: see `links.deliveries`."""
        return messages_of(self.broker, block_slice, damaged)

    def note_damage(self, damage: errors.DamagedMessages) -> None:
        """Keep in mind that messages cannot be read, for operators."""
        self.broker.damage.note(damage)

    # --- the other plane

    def flight_properties(self, user: str) -> Mapping[str, Any]:
        """Form what the open says of the other plane: where it is, and a token for it where there are users."""
        if self._flight is None:
            return {}
        scheme, port = self._flight
        found: dict[str, Any] = {"flight-scheme": scheme, "flight-port": port}
        if self.access.enforced:
            with contextlib.suppress(errors.NotFound):  # the user went after the login: the open is refused
                found["flight-token"] = self.access.token(user)
        return found

    # --- time

    def _tick(self) -> None:
        if self._stopping:
            return
        self.broker.histograms.loop_delay.observe(max(0.0, self._loop.time() - self._tick_at))
        self._tick_at = self._loop.time() + TICK_S
        self._loop.call_at(self._tick_at, self._tick)  # first: whatever goes wrong below, time goes on
        now = self.now()
        self.access.refresh()  # also the Flight plane does, so what it answers here does not say whether there is news
        self.sender_credit.tick(now)
        for peer in self.unfinished.late():
            text = f"no message was completed for {TIMEOUT_S:g} s or more, and others need the room of what is half sent"
            self.unfinished.forget(peer)
            peer.close(Error(condition=Condition.RESOURCE_LIMIT_EXCEEDED, description=text), for_good=True)
        wires = list(self._wires)
        queues, exchanges = self.nodes.there({name for wire in wires if wire.peer is not None for name in wire.peer.names})
        before, self._users = self._users, self.access.generation
        if self._users != before:
            revocation.enforce_detached(self)
        for wire in wires:
            try:
                wire.tick(now)
                if wire.peer is not None:
                    wire.peer.look_at_links(now, queues, exchanges)
                    if self._users != before:
                        revocation.enforce(wire.peer)
            except Exception:  # a mistake of ours about one peer: the others have their time-outs all the same
                log.exception("%s: cut off, because it cannot be looked after", wire.address)
                wire.abort()

    # --- the end

    def close(self) -> None:
        """Tell every peer that the broker stops, wait a little for their answers, and close the loop."""
        if self._loop.is_closed():
            return
        self.broker.connections.remove(self)
        self._run(self._stop())
        self.passwords.shutdown(cancel_futures=True)
        self.passes.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._stopping = True
        for acceptor in self._acceptors:
            acceptor.close()
        stops = Error(condition=Condition.CONNECTION_FORCED, description="the broker stops")
        for wire in list(self._wires):
            if wire.peer is not None and wire.peer.opened:
                wire.peer.close(stops, cause=Cause.BROKER_LOST)
            else:
                wire.abort()
        for endpoint in self.detached.links():
            endpoint.end_cause = Cause.BROKER_LOST
            self.detached.expire(endpoint)
        until = self._loop.time() + STOP_GRACE_S  # not the broker's clock: a stop ends, whatever that one does
        while (self._wires or len(self.detached)) and self._loop.time() < until:
            await asyncio.sleep(0.01)
        for wire in list(self._wires):
            wire.abort()
        while self._wires and self._loop.time() < until + 1.0:
            await asyncio.sleep(0.01)
