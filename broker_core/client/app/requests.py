"""Request and reply: all replies of a connection come on one temporary queue, which ends with the connection.

The pump assigns a reply to its request by the correlation id. When the connection is lost, open requests fail: their replies went
to the old queue.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from concurrent.futures import TimeoutError as Timeout
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

from ... import errors
from ...amqp import Message
from ...amqp.performatives import Header, Properties
from ..durations import Duration, milliseconds
from .consumer import PREFETCH, Consumer
from .modes import ACKNOWLEDGE_DELAY_S
from .source_link import SourceOptions

if TYPE_CHECKING:
    from .producer_pool import ProducerPool
    from .received import ReceivedMessage
    from .session import Session

#: End of the values of AMQP's `ttl`.
_TTL_END = 1 << 32


class NoReply(errors.PeerError):
    """A request without a reply in time. It may have been processed."""


class OpenRequest(NamedTuple):
    """`deadline`: on the monotonic clock."""

    address: str
    reply: Future[ReceivedMessage]
    deadline: float

    def seconds_left(self) -> float:
        return max(0.0, self.deadline - time.monotonic())

    def wait(self) -> ReceivedMessage:
        try:
            return self.reply.result(self.seconds_left())
        except Timeout as error:
            if self.reply.cancel():
                raise self.no_reply() from error
            return self.reply.result()  # it has just come

    def no_reply(self) -> NoReply:
        return NoReply(f"no reply to a request to {self.address!r} has come in time: does a consumer receive and reply?")


class ReplyConsumer(Consumer):
    """The consumer of the temporary queue. Its messages complete the open requests. The caller holds the lock."""

    def __init__(self, session: Session) -> None:
        super().__init__(session, ("temporary queue",), PREFETCH, SourceOptions(PREFETCH, dynamic=True), ACKNOWLEDGE_DELAY_S)
        self.open: dict[str, Future[ReceivedMessage]] = {}
        self.on_arrival = self._complete

    @property
    def failed(self) -> bool:
        return self._failure is not None

    def reply_to(self, deadline: float) -> str:
        if not self.wait_for(lambda: bool(self.links), deadline):
            raise errors.PeerError("a request was not sent: no broker has answered in time")
        return self.links[0].address

    def lost(self) -> None:
        super().lost()
        self._fail_all(errors.PeerError("the connection was lost before the reply came: the request may have been processed"))

    def fail(self, error: errors.PenstockError) -> None:
        super().fail(error)
        self._fail_all(error)

    def _complete(self) -> None:
        try:
            self._check()
        except errors.PenstockError as error:
            closed = errors.PeerError("the connection is closed, and the reply has not come: the request may have been processed")
            self._fail_all(closed if self.session.closed else error)
            return
        while (message := self.take()) is not None:
            self.session.ledger.processed(message)
            reply = self.open.pop(str(message.correlation_id), None)
            if reply is not None and reply.set_running_or_notify_cancel():  # otherwise the request has ended
                reply.set_result(message)

    def _fail_all(self, error: errors.PenstockError) -> None:
        while self.open:
            reply = self.open.popitem()[1]
            if reply.set_running_or_notify_cancel():
                reply.set_exception(error)


class Requester:
    """Requests of one connection, for any number of threads."""

    def __init__(self, open_session: Callable[[], Session], producers: ProducerPool) -> None:
        self._open_session = open_session
        self._producers = producers
        self._opening = threading.Lock()
        self._consumer: ReplyConsumer | None = None

    def begin(self, address: str, message: Message, timeout: Duration) -> OpenRequest:
        """Send a request. Returns when the broker has confirmed it."""
        ttl_ms = milliseconds("timeout", timeout, _TTL_END)
        deadline = time.monotonic() + ttl_ms / 1000
        consumer = self._opened()
        session = consumer.session
        correlation_id = session.connection.new_message_id()
        reply: Future[ReceivedMessage] = Future()
        with session.changed:
            request = _request(message, ttl_ms, consumer.reply_to(deadline), correlation_id)
            consumer.open[correlation_id] = reply
        sent = OpenRequest(address, reply, deadline)
        try:
            with self._producers.producer(address) as producer:
                producer.send(request, synchronous=True, timeout_s=sent.seconds_left())
        except BaseException:
            reply.cancel()
            raise
        finally:
            reply.add_done_callback(lambda _: consumer.open.pop(correlation_id, None))  # after a time-out
        return sent

    def _opened(self) -> ReplyConsumer:
        with self._opening:
            if self._consumer is None or self._consumer.failed:  # its queue may have been deleted
                session = self._open_session()
                consumer = ReplyConsumer(session)
                session.add(consumer)
                self._consumer = consumer
            return self._consumer


def _request(message: Message, ttl_ms: int, reply_to: str, correlation_id: str) -> Message:
    """The request expires when its time is over, unless it has its own `ttl`."""
    header, properties = message.header or Header(durable=True), message.properties or Properties()
    if properties.reply_to is not None or properties.correlation_id is not None:
        raise errors.InvalidRequest("a request gets its own reply_to and correlation_id: leave them out")
    if header.ttl is None:
        header = replace(header, ttl=ttl_ms)
    return replace(message, header=header, properties=replace(properties, reply_to=reply_to, correlation_id=correlation_id))
