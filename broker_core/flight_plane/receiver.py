"""Incoming messages: one `do_put`."""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

from .. import errors
from ..actions.fields import parse
from ..actions.permissions import Check, stage_of
from ..actions.requests import BatchMetadata, EnqueuePut, StagePut
from ..client import timeouts
from ..engine import commands as c
from ..engine.commands import ListExchanges
from ..messages import batch_checks, columns, payloads
from ..messages.encoding import validity
from ..service import routing
from ..service.broker import BrokerService
from .arrow_ipc import ArrowBatchReader, too_large

UNACKNOWLEDGED_BYTES = 32 << 20  # of one sender: the disk stays busy while the next batches arrive


#: Checks that the sender may send to a queue, and creates it on first use if a policy does so.
Reach = Callable[[str], Check]


@contextmanager
def final(taken: bool) -> Iterator[None]:
    """Refuse as NotAllowed once batches were `taken`: a client that is asked to log in would send all of them again."""
    try:
        yield
    except errors.Unauthenticated as error:
        if not taken:
            raise
        raise errors.NotAllowed(f"{error}. Batches before this one were taken: acknowledged batches stay") from error


class MessageReceiver:
    """One `do_put`: record batches in, acknowledgements out as they become durable, a bounded number of bytes between them.

    The sender may wait for an acknowledgement before its next batch, so they have their own thread.
    """

    def __init__(
        self, service: BrokerService, request: EnqueuePut, acknowledge: Callable[[bytes], None], check: Check, reach: Reach
    ) -> None:
        self._service = service
        self._check = check  # permission, which may end during the stream
        self._reach = reach
        self._reached: dict[str, Check] = {}  # permissions, if batches name their queues
        self._request = request
        self._names_queues = isinstance(request, StagePut) and request.routed  # each batch names its queue
        self._stage = stage_of(request) if isinstance(request, StagePut) else None
        self._tell = acknowledge
        self._changed = threading.Condition()
        self._pending: deque[tuple[int, int, dict[str, Any]]] = deque()  # log position, bytes, acknowledgement
        self._pending_bytes = 0
        self._complete = self._taking = self._silent = False
        self._notice: dict[str, Any] = {}  # of a full queue, for the next acknowledgement
        self._failure: Exception | None = None
        self._batches = self._messages = self._dropped = 0

    def receive(self, reader: ArrowBatchReader) -> None:
        # A missing queue or exchange is refused before messages are sent.
        target = self._target()
        if target is not None:
            self._service.submit(target)
        reader.waiting = self._say_again
        acknowledger = threading.Thread(target=self._acknowledge, name="penstock-acknowledge", daemon=True)
        acknowledger.start()
        try:
            while (batch := reader.next()) is not None:
                with final(self._batches > 0):
                    self._check()
                    queue = self._queue_of(reader.app_metadata)
                self._taking = True
                with self._counting(queue or self._request.exchange or "", batch.num_rows):
                    self._take(batch, queue)
                self._taking = False
                del batch  # its memory is free while the next batch comes
        finally:
            with self._changed:
                self._complete = True
                self._changed.notify_all()
            acknowledger.join()
        if self._failure is not None:
            raise self._failure

    @contextmanager
    def _counting(self, node: str, messages: int) -> Iterator[None]:
        try:
            yield
        except errors.PenstockError as error:
            if error is not self._failure:
                self._service.refused(node, error, messages)
            raise

    def _say_again(self) -> None:
        """A sign of life for the sender, whose next batch waits for memory."""
        with self._changed:
            self._silent = True
            self._changed.notify_all()

    def _say_full(self, queue: str, timeout_s: float) -> None:
        with self._changed:
            self._notice = {"fullQueue": queue, "timeoutS": timeout_s}
        self._say_again()

    def _queue_of(self, metadata: bytes) -> str | None:
        if not self._names_queues:
            return self._request.queue
        name = parse("the metadata of a batch", metadata, BatchMetadata).queue
        check = self._reached.get(name)
        if check is None:
            self._reached[name] = self._reach(name)
        else:
            check()
        return name

    def _take(self, data: Any, queue: str | None) -> None:
        limits = self._service.settings
        nbytes = data.get_total_buffer_size()  # not `nbytes`, which follows unchecked offsets
        if nbytes > limits.max_batch_bytes:
            raise too_large(limits.max_batch_bytes, nbytes)
        batch = batch_checks.validate(data, limits.max_batch_bytes, now=self._service.wall_ms())
        sizes = payloads.stored_sizes(batch)
        largest = sizes if isinstance(sizes, int) else int(sizes.max(initial=0))
        if largest > limits.max_message_bytes:
            raise errors.ResourceLimit(f"a message has at most {limits.max_message_bytes} bytes, one of these has {largest}")
        if "message" in batch.schema.names:
            validity.check_column(batch.column("message"))
        if not isinstance(sizes, int):
            sizes = sizes.astype(np.min_scalar_type(largest))
        # The broker keeps recent batches in memory. This one is a view of the sender's message, which may also contain padding,
        # gaps, and columns that were cast.
        payload = payloads.store(batch).detached
        nbytes = payload.nbytes
        self._service.reserve_space(nbytes)
        reply, end = self._store(queue, batch, sizes, payload)
        self._batches += 1
        self._messages += batch.num_rows
        acknowledgement = {"batches": self._batches, "messages": self._messages, **reply}
        with self._changed:
            self._pending.append((end, nbytes, acknowledgement))
            self._pending_bytes += nbytes
            self._changed.notify_all()
            while self._pending_bytes > UNACKNOWLEDGED_BYTES and self._failure is None:
                self._changed.wait()
        if self._failure is not None:
            raise self._failure

    def _target(self) -> c.Command[Any] | None:
        """Return a command that needs the request's queue or exchange, unless batches name theirs."""
        queue, exchange, key = self._request.queue, self._request.exchange, self._request.routing_key
        if self._names_queues:
            if any(field is not None for field in (queue, exchange, key)):
                raise errors.InvalidRequest("field 'routed': each batch names its queue, so queue and exchange must be left out")
            return None
        if queue is None and exchange is None:
            raise errors.InvalidRequest("field 'queue' must be there, or 'exchange'")
        if queue is not None and exchange is not None:
            raise errors.InvalidRequest("field 'exchange' must be left out where there is a 'queue'")
        if exchange is None and key is not None:
            raise errors.InvalidRequest("field 'routingKey' must be left out where there is no 'exchange'")
        return c.Stat(queue) if exchange is None else ListExchanges(exchange)

    def _store(self, queue: str | None, batch: Any, sizes: Any, payload: payloads.Stored) -> tuple[dict[str, int], int]:
        stage = self._stage
        durable = stage is not None or columns.any_durable(batch)
        if queue is None:
            exchange, key = self._request.exchange, self._request.routing_key
            assert exchange is not None
            keys = routing.subjects(payload.batch) if key is None else key
            sending = routing.ExchangeMessages(exchange, payload, sizes, keys, durable, whole=True, stage=stage)
            sent, end = routing.send(self._service, sending)
            self._dropped += sent.dropped
            return {"dropped": self._dropped} if self._dropped else {}, end
        attributes = self._service.attributes(queue, payload.payload)
        if stage is None:
            command: c.Enqueue | c.StageMessages = c.Enqueue(
                queue, batch.num_rows, sizes, payload, durable, attributes, whole=True
            )
        else:
            command = c.StageMessages(stage, queue, batch.num_rows, sizes, payload, attributes)
        placed, end = self._service.submit_patiently(command, on_wait=self._say_full)
        return {} if placed is None else {"next": placed.next}, end

    def _acknowledge(self) -> None:
        """Acknowledge durable batches together until the stream is complete. Repeat the last acknowledgement while a batch waits
        for capacity or memory: a sender gives up after a silence."""
        journal = self._service.journal
        last: dict[str, Any] = {"batches": 0, "messages": 0}
        try:
            while True:
                with self._changed:
                    while not self._pending and not self._complete and not self._silent:
                        if not self._changed.wait(timeouts.ALIVE_S) and self._taking:
                            break
                    if self._complete and not self._pending:
                        return
                    notice, self._notice, self._silent = self._notice, {}, False
                    oldest = self._pending[0][0] if self._pending else None
                if oldest is None:
                    self._tell(json.dumps({**last, **notice}).encode())
                    continue
                journal.wait(oldest)
                with self._changed:
                    while self._pending and self._pending[0][0] <= journal.durable:
                        _, nbytes, last = self._pending.popleft()
                        self._pending_bytes -= nbytes
                    self._changed.notify_all()
                self._tell(json.dumps({**last, **notice}).encode())
        except Exception as error:  # the receiving side reports it
            with self._changed:
                self._failure = error
                self._changed.notify_all()
