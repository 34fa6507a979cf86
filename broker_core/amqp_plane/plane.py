"""An event loop in its own thread, with listeners and limits."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import logging
import selectors
import socket
import ssl
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Collection, Coroutine, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from concurrent.futures import TimeoutError as FutureTimeout
from functools import cache, partial
from typing import Any, TypeVar

from .. import __version__, errors
from ..amqp import Condition, ConnectionSettings
from ..amqp.performatives import Error
from ..engine.columns.states import Cause
from ..logs import counted
from ..security.access import Access
from ..security.log_limit import LogLimit
from ..service.broker import BrokerService
from ..settings.listeners import AMQP, SERVICE_BUS, Listener, in_url
from .conditions import Refusal
from .connections import listing
from .connections.containers import SOLE, Containers
from .connections.dispatcher import Dispatcher
from .connections.sockets import AcceptedSocket
from .connections.unfinished_messages import TIMEOUT_S, UnfinishedMessages
from .context import PlaneContext
from .links.attach import DELAYED_DELIVERY, SHARED_SUBS
from .links.consumer import ConsumerLink
from .links.registry import LinkRegistry
from .loop.acceptor import Acceptor, bound
from .service_bus.peer import ServiceBusPeer
from .service_bus.receiving import Receivers
from .service_bus.sessions import Searches

T = TypeVar("T")

log = logging.getLogger("penstock.amqp")
log.addFilter(LogLimit())  # a refused client may try again a thousand times a second

TICK_S = 0.25  # precision of heartbeats and time-outs
SHORTEST_HEARTBEAT_MS = 1000  # the shortest idle time-out of a peer: half of it must be several ticks
FIRST_FRAME_BYTES = 8192  # of an open: some clients put more than 512 octets of properties there
STOP_GRACE_S = 2.0  # for peers to answer our close
PASSWORD_THREADS = 2  # checking a password costs time on purpose; each connection waits for at most one check
UNFINISHED_MESSAGES = 2  # of the largest size, that one connection may have half sent, over all its links
DESCRIBED_AT_ONCE = 32  # connections, for operators, before the sockets are served again
ANSWER_S = 10.0  # an operator waits for the loop
DOOMED = 64  # connections beyond the limit that still receive an open and a close with the reason


class Ready(selectors.DefaultSelector):
    """A selector with the number of sockets that the loop is about to serve: `count`."""

    count = 0

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(timeout)
        self.count = len(ready)
        return ready


class AmqpPlane(PlaneContext):
    """The plane: it listens from construction until `close`.

    `flight`: scheme and port of the Flight plane. `connections`: fewer than the settings allow, if there are not enough file
    descriptors.
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
        settings = broker.settings
        if connections is not None:
            settings = dataclasses.replace(settings, amqp_max_connections=connections)
        self.ready = Ready()
        super().__init__(broker, access, settings, asyncio.SelectorEventLoop(self.ready))
        self.containers = Containers()
        service_bus = partial(ServiceBusPeer, Receivers(), Searches())
        self.dialects: Mapping[str, Callable[..., Dispatcher]] = {AMQP: Dispatcher, SERVICE_BUS: service_bus}
        self.passwords = ThreadPoolExecutor(PASSWORD_THREADS, "penstock-amqp-login")
        self._tls_context = tls_context
        self._flight = flight
        self._accepted: set[AcceptedSocket] = set()
        self._acceptors: list[Acceptor] = []
        self._stopping = False
        self._users = access.generation  # of the users file, when rights were last checked
        self._tick_at = self._loop.time()
        self.registry = LinkRegistry(self._loop, settings)
        self.unfinished = UnfinishedMessages(settings.max_message_bytes, self.now)
        self.protocol = self._protocol()
        self.urls: list[str] = []
        self._thread = threading.Thread(target=self._loop.run_forever, name="penstock-amqp", daemon=True)
        self._thread.start()
        try:
            self._run(self._listen(listeners))
        except OSError as error:
            self.close()
            raise errors.InvalidRequest(f"cannot listen for AMQP: {error}") from error
        broker.connections.register(self)

    def _protocol(self) -> ConnectionSettings:
        settings = self.settings
        return ConnectionSettings(
            container_id=f"penstock-{self.broker.broker_id}",
            max_frame_size=settings.amqp_max_frame_bytes,
            first_frame_size=min(FIRST_FRAME_BYTES, settings.amqp_max_frame_bytes),
            channel_max=settings.amqp_max_sessions - 1,
            handle_max=settings.amqp_max_links - 1,
            idle_time_out=int(settings.amqp_idle_timeout_s * 500),  # we give up a peer after twice that (2.4.5)
            min_remote_idle_time_out=SHORTEST_HEARTBEAT_MS,
            max_message_size=settings.max_message_bytes,
            max_unfinished_size=UNFINISHED_MESSAGES * settings.max_message_bytes,
            answers_violations=False,  # the dispatcher answers, after all earlier frames
            errant_link_ends_session=False,
            offered_capabilities=("ANONYMOUS-RELAY", SOLE, SHARED_SUBS, DELAYED_DELIVERY),
            properties={"product": "Penstock", "version": __version__},
        )

    def count_connections(self) -> int:
        return len(self._accepted)

    def count_users(self) -> dict[str, int]:
        return dict(self.containers.users)

    def _run(self, coroutine: Coroutine[Any, Any, None]) -> None:
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result()

    async def _listen(self, listeners: Sequence[Listener]) -> None:
        for listener in listeners:
            sockets, port = bound(listener.host.strip("[]"), listener.port)
            starved = partial(self.broker.connections.cannot_accept, "AMQP")
            acceptor = Acceptor(self._loop, sockets, partial(AcceptedSocket, self, listener), starved)
            self._acceptors.append(acceptor)
            acceptor.start()
            host = listener.host if listener.host not in ("0.0.0.0", "::") else socket.gethostname()
            self.urls.append(f"{listener.scheme}://{in_url(host)}:{port}")
        self._tick()

    # --- connections

    def enter(self, accepted: AcceptedSocket) -> bool:
        """Add an accepted socket. Returns False if there are too many, even for an answer."""
        if self._stopping or len(self._accepted) >= self.settings.amqp_max_connections + DOOMED:
            open_connections = counted(len(self._accepted), "connection")
            log.warning("%s: turned away, %s open", accepted.address, open_connections, extra={"peer": accepted.address})
            return False
        self._accepted.add(accepted)
        return True

    def admit(self, peer: Dispatcher) -> None:
        peer.socket.opened()
        if len(self._accepted) > self.settings.amqp_max_connections:
            text = f"{self.settings.amqp_max_connections} connections are open, the limit"
            raise Refusal(Condition.RESOURCE_LIMIT_EXCEEDED, text)
        most = self.settings.amqp_max_connections_per_user
        if self.containers.users[peer.user] >= most:
            raise Refusal(Condition.RESOURCE_LIMIT_EXCEEDED, f"user {peer.user!r} has {most} connections, the limit")

    def left(self, peer: Dispatcher) -> None:
        self.containers.leave(peer)
        if peer.opened:
            details = {"user": peer.user, "peer": peer.transport.address, "container": peer.container[: listing.SHORT]}
            self.broker.events.note("connection-closed", f"the connection of {peer} is closed", **details)
        self.unfinished.forget(peer)
        self.commit_loop.forget(peer.transport)

    def leave(self, accepted: AcceptedSocket) -> None:
        self._accepted.discard(accepted)

    def tls_context(self) -> ssl.SSLContext:
        assert self._tls_context is not None  # a listener with TLS was checked to have a certificate
        return self._tls_context()

    # --- requests of operators, from other threads

    def connections(self) -> list[dict[str, Any]]:
        return self._answer(self._described())

    async def _described(self) -> list[dict[str, Any]]:
        wall_us, groups_held = self.broker.wall_ms() * 1000, cache(self.nodes.groups_held)
        return [listing.described(socket, self.now(), wall_us, groups_held) async for socket in self._open()]

    def consumers(self, queue: str, holders: Collection[int]) -> list[dict[str, Any]]:
        return self._answer(self._consumers(queue, holders))

    async def _consumers(self, queue: str, holders: Collection[int]) -> list[dict[str, Any]]:
        now, wall_us = self.now(), self.broker.wall_ms() * 1000
        links = self.commit_loop.acquisitions.consumers(queue, holders)
        return [listing.consumer(link, behind, now, wall_us) for link, behind in links if isinstance(link, ConsumerLink)]

    def slow_consumers(self) -> Counter[str]:
        return self._answer(self._slow())

    async def _slow(self) -> Counter[str]:
        return Counter([queue async for socket in self._open() for queue in listing.slow(socket, self.now())])

    async def _open(self) -> AsyncIterator[AcceptedSocket]:
        """Yield the sockets of open connections. Other sockets are served meanwhile."""
        for number, accepted in enumerate(list(self._accepted), 1):
            if accepted.peer is not None and accepted.peer.opened and not accepted.peer.gone:
                yield accepted
            if number % DESCRIBED_AT_ONCE == 0:
                await asyncio.sleep(0)

    def close_connection(self, identifier: str, reason: str) -> bool:
        """Close a connection, and return its messages. Returns False if there is no such connection."""
        return self._answer(self._close_one(identifier, reason))

    async def _close_one(self, identifier: str, reason: str) -> bool:
        for accepted in self._accepted:
            if listing.identifier(accepted) == identifier and accepted.peer is not None:
                error = Error(condition=Condition.CONNECTION_FORCED, description=reason)
                accepted.peer.close(error, permanently=True, cause=Cause.LINK_CLOSED)
                return True
        return False

    def _answer(self, coroutine: Coroutine[Any, Any, T]) -> T:
        """Run a coroutine in the loop. Raises ResourceLimit after `ANSWER_S`."""
        try:
            future = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        except RuntimeError:  # the loop is closed
            coroutine.close()
            raise errors.ResourceLimit("the broker stops") from None
        try:
            return future.result(ANSWER_S)
        except FutureTimeout:
            future.cancel()
            raise errors.ResourceLimit(f"the AMQP plane has not answered within {ANSWER_S:g} s: try again") from None

    def flight_properties(self, user: str) -> Mapping[str, Any]:
        """Return properties of our open: the address of the Flight plane, and a token if there are users."""
        if self._flight is None:
            return {}
        scheme, port = self._flight
        properties: dict[str, Any] = {"flight-scheme": scheme, "flight-port": port}
        if self.access.enforced:
            with contextlib.suppress(errors.NotFound):  # the user was removed after the login: the open is refused
                properties["flight-token"] = self.access.token(user)
        return properties

    # --- time

    def _tick(self) -> None:
        if self._stopping:
            return
        self.broker.histograms.loop_delay.observe(max(0.0, self._loop.time() - self._tick_at))
        self._tick_at = self._loop.time() + TICK_S
        self._loop.call_at(self._tick_at, self._tick)  # first: after any failure below, the next tick still comes
        now = self.now()
        self.access.refresh()  # its result is not enough: the Flight plane may have called it first
        self.sender_credit.tick(now)
        for peer in self.unfinished.late():
            text = f"no message was completed for {TIMEOUT_S:g} s or more, and others need the memory of half-sent messages"
            self.unfinished.forget(peer)
            peer.close(Error(condition=Condition.RESOURCE_LIMIT_EXCEEDED, description=text), permanently=True)
        sockets = list(self._accepted)
        names = {name for accepted in sockets if accepted.peer is not None for name in accepted.peer.names}
        queues, exchanges = self.nodes.existing(names)
        before, self._users = self._users, self.access.generation
        if self._users != before:
            self.registry.check_rights()
        for accepted in sockets:
            try:
                accepted.tick(now)
                if accepted.peer is not None:
                    accepted.peer.look_at_links(now, queues, exchanges)
                    if self._users != before:
                        accepted.peer.check_rights()
            except Exception:  # a bug that concerns one peer: the others still have their time-outs
                log.exception("%s: cut off, because it cannot be looked after", accepted.address)
                accepted.abort()

    # --- the end

    def close(self) -> None:
        """Close all connections, wait `STOP_GRACE_S` for answers, and stop the loop."""
        if self._loop.is_closed():
            return
        self.broker.connections.remove(self)
        self._run(self._stop())
        self.passwords.shutdown(cancel_futures=True)
        self.commit_loop.close()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    async def _stop(self) -> None:
        self._stopping = True
        for acceptor in self._acceptors:
            acceptor.close()
        stops = Error(condition=Condition.CONNECTION_FORCED, description="the broker stops")
        for accepted in list(self._accepted):
            if accepted.peer is not None and accepted.peer.opened:
                accepted.peer.close(stops, cause=Cause.BROKER_LOST)
            else:
                accepted.abort()
        for endpoint in self.registry.links():
            endpoint.end_cause = Cause.BROKER_LOST
            self.registry.expire(endpoint)
        until = self._loop.time() + STOP_GRACE_S  # not the plane's clock, which may stand still
        while (self._accepted or len(self.registry)) and self._loop.time() < until:
            await asyncio.sleep(0.01)
        for accepted in list(self._accepted):
            accepted.abort()
        while self._accepted and self._loop.time() < until + 1.0:
            await asyncio.sleep(0.01)
