"""The Flight plane: docs/flight-protocol.md, translated into commands. No rule of a queue lives here."""

from __future__ import annotations

import json
import struct
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from pyarrow import flight

from broker_core import __version__, errors, message, reading
from broker_core.engine import commands as c
from broker_core.engine.blocks import Block
from broker_core.engine.limits import SECOND
from broker_core.engine.rowset import BLOCK_ROWS
from broker_core.engine.states import Outcome, State
from broker_core.service import BrokerService

MAX_REQUEST_BYTES = 1 << 20  # a request in JSON: `stage.publish` with thousands of stages fits
MAX_WAIT_MS = 100  # a long-poll: all sources of a Spark query are asked in one thread
MAX_ERROR_BYTES = 1000  # of an error's text: it travels twice in HTTP/2 headers, of which gRPC takes 8 KiB
MAX_LEASE_TIMEOUT_S = 10 * 365 * 86400
STOP_GRACE_S = 2.0  # for calls that run when the broker stops; a client that neither reads nor sends would hold it for ever
UNACKNOWLEDGED_BYTES = 32 << 20  # of one sender: enough to keep the disk busy while the next batches arrive

_REQUIRED = object()
Fields = dict[str, tuple[type | tuple[type, ...], Any]]
_TEXT, _INT, _BOOL = (str, _REQUIRED), (int, _REQUIRED), (bool, False)
_OPTIONAL_INT = ((int, type(None)), None)
_LEASE: Fields = {"queue": _TEXT, "lease": _TEXT, "run": _TEXT, "epoch": ((int, type(None)), _REQUIRED)}
_LOSS: Fields = {"failOnDataLoss": (bool, True)}
_LEAST = {"finished": 0, "after": 0, "waitMs": 0, "messages": 1, "bytes": 1, "minPartitions": 1, "maxMessages": 1}

ACTIONS: dict[str, Fields] = {
    "hello": {},
    "queue.declare": {"queue": _TEXT, "type": (str, "fifo"), "options": (dict, {})},
    "queue.delete": {"queue": _TEXT, "force": _BOOL},
    "queue.list": {},
    "queue.stat": {"queue": _TEXT},
    "queue.purge": {"queue": _TEXT},
    "stage.publish": {"stages": (list, _REQUIRED), "key": ((dict, type(None)), None)},
    "stage.discard": {"stages": (list, _REQUIRED)},
    "lease.advance": {
        **_LEASE,
        **_LOSS,
        "finished": _INT,
        "fresh": _BOOL,
        "messages": _OPTIONAL_INT,
        "bytes": _OPTIONAL_INT,
        "until": _OPTIONAL_INT,
        "waitMs": (int, 0),
        "exclude": _BOOL,
        "leaseTimeout": ((int, float, type(None)), None),
    },
    "lease.plan": {**_LEASE, **_LOSS, "after": _INT, "batch": _INT, "minPartitions": (int, 1), "maxMessages": _OPTIONAL_INT},
    "lease.settle": {**_LEASE, "finished": _INT},
    "lease.renew": {"lease": _TEXT, "epoch": _INT},
    "lease.list": {},
    "lease.release": {"lease": _TEXT, "how": _TEXT},
    "lease.settleRow": {"lease": _TEXT, "sequence": _INT, "outcome": _TEXT, "error": ((str, type(None)), None)},
    "lease.delete": {"lease": _TEXT},
}
_BATCH: Fields = {
    "op": _TEXT,
    "lease": _TEXT,
    "run": _TEXT,
    "epoch": _INT,
    "batch": _INT,
    "first": _INT,
    "last": _INT,
    "columns": (list, _REQUIRED),
}
TICKETS: dict[str, Fields] = {
    "batch": {**_BATCH, **_LOSS},
    "map": {**_BATCH, **_LOSS},
    "browse": {
        "op": _TEXT,
        "queue": _TEXT,
        "states": (list, ["available"]),
        "first": (int, 0),
        "last": _OPTIONAL_INT,
        "since": _OPTIONAL_INT,
        "until": _OPTIONAL_INT,
        "outcome": ((str, type(None)), None),
        "columns": (list, _REQUIRED),
    },
}
PUTS: dict[str, Fields] = {"enqueue": {"op": _TEXT, "queue": _TEXT}, "stage": {"op": _TEXT, "queue": _TEXT, "stage": _TEXT}}


def parse(what: str, data: bytes, known: Fields) -> dict[str, Any]:
    """A request's fields, checked against what is known; anything else is refused by name."""
    request = _json(what, data)
    for name in request:
        if name not in known:
            raise errors.InvalidRequest(f"{what}: unknown field {name!r:.80}; known are {', '.join(known) or 'none'}")
    values = {}
    for name, (types, default) in known.items():
        value = request.get(name, default)
        if value is _REQUIRED:
            raise errors.InvalidRequest(f"{what}: field {name!r} is missing")
        allowed = types if isinstance(types, tuple) else (types,)
        if type(value) not in allowed or (isinstance(value, int) and not -(2**63) <= value < 2**63):
            raise errors.InvalidRequest(
                f"{what}: field {name!r} must be {' or '.join(t.__name__ for t in allowed)}, not {value!r:.80}"
            )
        if name in _LEAST and value is not None and value < _LEAST[name]:
            raise errors.InvalidRequest(f"{what}: field {name!r} must be at least {_LEAST[name]}, not {value}")
        values[name] = value
    return values


def _json(what: str, data: bytes) -> dict[str, Any]:
    if len(data) > MAX_REQUEST_BYTES:
        raise errors.InvalidRequest(f"{what}: a request has at most {MAX_REQUEST_BYTES} bytes, this one {len(data)}")
    try:
        request = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidRequest(f"{what}: the request is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise errors.InvalidRequest(f"{what}: the request is not a JSON object")
    if b"\\u" in data and not _is_unicode(request):
        raise errors.InvalidRequest(f"{what}: a text has half of a surrogate pair, which is no character")
    return request


def _is_unicode(request: Any) -> bool:
    try:
        json.dumps(request, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return False
    return True


def _by_op(data: bytes, known: dict[str, Fields]) -> dict[str, Any]:
    op = _json("request", data).get("op")
    if not isinstance(op, str) or op not in known:
        raise errors.InvalidRequest(f"field 'op' must be one of {', '.join(known)}, not {op!r:.80}")
    return parse(op, data, known[op])


def _strings(what: str, values: list[Any]) -> list[str]:
    if not all(isinstance(value, str) for value in values):
        raise errors.InvalidRequest(f"{what} must be a list of strings")
    return values


def _raise(error: errors.PenstockError) -> Any:
    kinds = {"peer": flight.FlightUnavailableError, "storage": flight.FlightInternalError}
    text = str(error).encode(errors="backslashreplace")
    if len(text) > MAX_ERROR_BYTES:
        error = type(error)(text[:MAX_ERROR_BYTES].decode(errors="ignore") + " …")
    raise kinds.get(error.fault, flight.FlightServerError)(str(error), error.to_json()) from error


class FlightPlane:
    """A Flight server on its own threads, from construction until `close`."""

    def __init__(self, service: BrokerService, host: str, port: int) -> None:
        self._server = _Server(service, host, port)
        self.url = f"grpc://{host}:{self._server.port}"
        self._server.url = self.url

    def close(self) -> None:
        """Take no new calls, and give those that run a while to end."""
        stopping = threading.Thread(target=self._server.shutdown, name="penstock-flight-stop", daemon=True)
        stopping.start()
        stopping.join(STOP_GRACE_S)


class _Server(flight.FlightServerBase):  # type: ignore[misc]  # pyarrow has no types
    def __init__(self, service: BrokerService, host: str, port: int) -> None:
        super().__init__(f"grpc://{host}:{port}")
        self.url = ""
        self._service = service
        self._actions: dict[str, Callable[[dict[str, Any]], dict[str, Any]]] = {
            "hello": self._hello,
            "queue.declare": self._declare,
            "queue.delete": self._delete,
            "queue.list": lambda f: {"queues": self._service.submit(c.Stat())},
            "queue.stat": lambda f: dict(self._service.submit(c.Stat(f["queue"]))[0]),
            "queue.purge": lambda f: {"purged": self._service.submit(c.Purge(f["queue"]))},
            "stage.publish": self._publish,
            "stage.discard": lambda f: {"discarded": self._service.submit(c.Discard(_strings("stages", f["stages"])))},
            "lease.advance": self._advance,
            "lease.plan": self._plan,
            "lease.settle": self._settle,
            "lease.renew": self._renew,
            "lease.list": lambda f: {"leases": self._service.submit(c.ListLeases())},
            "lease.release": self._release,
            "lease.settleRow": self._settle_row,
            "lease.delete": self._delete_lease,
        }

    # Flight's entry points
    def do_action(self, context: flight.ServerCallContext, action: flight.Action) -> list[bytes]:
        try:
            handler = self._actions.get(action.type)
            if handler is None:
                raise errors.InvalidRequest(f"unknown action {action.type!r:.80}; known are {', '.join(ACTIONS)}")
            return [json.dumps(handler(parse(action.type, action.body.to_pybytes(), ACTIONS[action.type]))).encode()]
        except errors.PenstockError as error:
            return _raise(error)  # type: ignore[no-any-return]

    def list_actions(self, context: flight.ServerCallContext) -> list[tuple[str, str]]:
        return [(name, ", ".join(known)) for name, known in ACTIONS.items()]

    def do_put(
        self,
        context: flight.ServerCallContext,
        descriptor: flight.FlightDescriptor,
        reader: flight.MetadataRecordBatchReader,
        writer: flight.FlightMetadataWriter,
    ) -> None:
        try:
            request = _by_op(descriptor.command or b"", PUTS)
            _Receiver(self._service, request, writer).receive(reader)
        except errors.PenstockError as error:
            _raise(error)

    def do_get(self, context: flight.ServerCallContext, ticket: flight.Ticket) -> flight.FlightDataStream:
        try:
            request = _by_op(ticket.ticket, TICKETS)
            columns = _strings("columns", request["columns"])
            schema = message.arrow_schema(columns)
            if request["op"] == "browse":
                stream = self._browse(request, columns)
            elif request["op"] == "batch":
                stream = self._batch(request, columns)
            else:
                schema, stream = reading.PIECE_SCHEMA, self._map(request)
            return flight.GeneratorStream(schema, _translated(stream))
        except errors.PenstockError as error:
            return _raise(error)

    # Actions
    def _hello(self, f: dict[str, Any]) -> dict[str, Any]:
        return {
            "version": 1,
            "product": f"penstock/{__version__}",
            "broker": self._service.broker_id,
            "dataDir": str(self._service.settings.data.absolute()),
            "flight": self.url,
        }

    def _declare(self, f: dict[str, Any]) -> dict[str, Any]:
        return {"queue": f["queue"], "created": self._service.submit(c.DeclareQueue(f["queue"], f["type"], f["options"]))}

    def _delete(self, f: dict[str, Any]) -> dict[str, Any]:
        self._service.submit(c.DeleteQueue(f["queue"], f["force"]))
        return {"queue": f["queue"]}

    def _publish(self, f: dict[str, Any]) -> dict[str, Any]:
        key = None
        if f["key"] is not None:
            known: Fields = {"kind": _TEXT, "id": _TEXT, "number": _INT}
            fields = parse("stage.publish: key", json.dumps(f["key"]).encode(), known)
            if fields["kind"] not in ("stream", "txn"):
                raise errors.InvalidRequest("stage.publish: key.kind must be 'stream' or 'txn'")
            key = c.PublishKey(**fields)
        published, repeated = self._service.submit(c.Publish(_strings("stages", f["stages"]), key))
        return {"published": published, "repeated": repeated}

    def _enter(self, f: dict[str, Any]) -> c.EnterLease:
        timeout = f.get("leaseTimeout")
        if timeout is not None and not 0 < timeout <= MAX_LEASE_TIMEOUT_S:  # NaN fails too
            raise errors.InvalidRequest(
                f"field 'leaseTimeout' must be seconds above 0, at most {MAX_LEASE_TIMEOUT_S}, not {timeout}"
            )
        micros = None if timeout is None else int(timeout * SECOND)
        return c.EnterLease(f["queue"], f["lease"], f["run"], f["epoch"], f.get("fresh", False), micros)

    def _advance(self, f: dict[str, Any]) -> dict[str, Any]:
        enter = self._enter(f)
        finish = c.FinishBatches(f["lease"], f["finished"], True, f["exclude"], f["failOnDataLoss"])
        acquire = c.AcquireBatch(
            f["queue"],
            f["lease"],
            f["run"],
            f["finished"],
            f["messages"],
            f["bytes"],
            f["until"],
            f["exclude"],
            enter.timeout,
            f["failOnDataLoss"],
        )
        deadline = time.monotonic() + min(f["waitMs"], MAX_WAIT_MS) / 1000
        seen = self._service.arrivals
        epoch, batch = self._service.submit(enter, finish, acquire)
        while batch == f["finished"] and self._service.wait_for_arrival(seen, deadline - time.monotonic()):
            seen = self._service.arrivals
            again = c.EnterLease(f["queue"], f["lease"], f["run"], epoch, f["fresh"], enter.timeout)
            epoch, batch = self._service.submit(again, acquire)
        return {"epoch": epoch, "batch": batch}

    def _plan(self, f: dict[str, Any]) -> dict[str, Any]:
        enter = self._enter(f)
        plan = c.PlanBatches(f["lease"], f["after"], f["batch"], f["minPartitions"], f["maxMessages"], f["failOnDataLoss"])
        epoch, parts = self._service.submit(enter, plan)
        return {"epoch": epoch, "parts": parts}

    def _settle(self, f: dict[str, Any]) -> dict[str, Any]:
        epoch, settled, unread = self._service.submit(self._enter(f), c.FinishBatches(f["lease"], f["finished"], strict=False))
        return {"epoch": epoch, "settled": settled, "unread": unread}

    def _renew(self, f: dict[str, Any]) -> dict[str, Any]:
        self._service.submit(c.RenewLease(f["lease"], f["epoch"]))
        return {"lease": f["lease"]}

    def _release(self, f: dict[str, Any]) -> dict[str, Any]:
        if f["how"] not in ("settle", "return"):
            raise errors.InvalidRequest("lease.release: field 'how' must be 'settle' or 'return'")
        return {"messages": self._service.submit(c.ReleaseLease(f["lease"], f["how"] == "settle"))}

    def _settle_row(self, f: dict[str, Any]) -> dict[str, Any]:
        self._service.submit(c.SettleRow(f["lease"], f["sequence"], f["outcome"], f["error"]))
        return {"sequence": f["sequence"]}

    def _delete_lease(self, f: dict[str, Any]) -> dict[str, Any]:
        self._service.submit(c.DeleteLease(f["lease"]))
        return {"lease": f["lease"]}

    # Streams
    def _read(self, f: dict[str, Any]) -> tuple[str, Iterator[reading.Cut]]:
        """The first read of a batch is journaled and durable when this returns: before any byte leaves."""
        command = c.ReadBatch(f["lease"], f["run"], f["epoch"], f["batch"], f["first"], f["last"], f["failOnDataLoss"])
        queue, rows = self._service.submit(command)
        return queue, self._service.cuts(queue, rows)

    def _batch(self, f: dict[str, Any], columns: list[str]) -> Iterator[Any]:
        queue, cuts = self._read(f)
        token = _delivery_prefix(f["lease"], f["batch"], f["epoch"])
        return reading.batches(self._service.journal, cuts, columns, queue, token)

    def _map(self, f: dict[str, Any]) -> Iterator[Any]:
        _, found = self._read(f)
        cuts = list(found)
        if not reading.mappable(cuts):
            raise errors.NotMappable("the messages lie too scattered; ask for op=batch")
        return (reading.piece_batch(self._service.journal, part) for part in cuts)

    def _browse(self, f: dict[str, Any], columns: list[str]) -> Iterator[Any]:
        cuts = self._service.browse(f["queue"], _selection(f), f["first"], f["last"])
        return reading.batches(self._service.journal, cuts, columns, f["queue"])


def _delivery_prefix(lease: str, batch: int, epoch: int) -> bytes:
    """Version, lease, batch, epoch: with it a zombie of an older epoch settles nothing."""
    name = lease.encode()
    return struct.pack(f">BH{len(name)}sQQ", 1, len(name), name, batch, epoch)


def _translated(stream: Iterator[Any]) -> Iterator[Any]:
    try:
        yield from stream
    except errors.PenstockError as error:
        _raise(error)


def _selection(f: dict[str, Any]) -> Callable[[Block], Any]:
    """The rows of a block that a browse asks for: state, outcome, sequence and enqueued time, all as columns."""
    names = {state.name.lower(): state for state in (State.AVAILABLE, State.ACQUIRED, State.ARCHIVED)}
    wanted = np.zeros(len(State), bool)
    for name in _strings("states", f["states"]):
        if name not in names:
            raise errors.InvalidRequest(f"browse: state {name!r} is not one of {', '.join(names)}")
        wanted[names[name]] = True
    outcome = None
    if f["outcome"] is not None:
        outcomes = {o.name.lower().replace("_", "-"): o for o in Outcome if o is not Outcome.NONE}
        if f["outcome"] not in outcomes:
            raise errors.InvalidRequest(f"browse: outcome {f['outcome']!r} is not one of {', '.join(outcomes)}")
        outcome = outcomes[f["outcome"]]
    first, since, until = f["first"], f["since"], f["until"]
    last = f["last"] if f["last"] is not None else 2**63 - 1 - BLOCK_ROWS

    def select(block: Block) -> Any:
        bounds = block.rows_between(first, last)
        mask = wanted[block.state[bounds]]
        if outcome is not None:
            mask &= np.asarray(block.outcome.get(bounds)) == outcome
        if since is not None or until is not None:
            starts, times = block.runs.row.array(), block.runs.time.array()
            of = np.searchsorted(starts, np.arange(bounds.start, bounds.stop), side="right") - 1
            kept = (times >= (since if since is not None else -(2**63))) & (times < (until if until is not None else 2**63 - 1))
            mask &= kept[of]
        if mask.all():
            return bounds
        return np.flatnonzero(mask) + bounds.start

    return select


class _Receiver:
    """One `do_put`: record batches in, acknowledgements out as they become durable, a bounded number of bytes between them.

    Acknowledgements have a thread of their own: the sender may wait for one while we wait for its next batch.
    """

    def __init__(self, service: BrokerService, request: dict[str, Any], writer: flight.FlightMetadataWriter) -> None:
        self._service = service
        self._request = request
        self._writer = writer
        self._changed = threading.Condition()
        self._pending: deque[tuple[int, int, dict[str, Any]]] = deque()  # log position, bytes, acknowledgement
        self._pending_bytes = 0
        self._complete = False
        self._failure: Exception | None = None
        self._batches = self._messages = 0

    def receive(self, reader: flight.MetadataRecordBatchReader) -> None:
        # A queue that is not there is refused before anything is sent.
        self._service.submit(c.Stat(self._request["queue"]))
        acknowledger = threading.Thread(target=self._acknowledge, name="penstock-acknowledge", daemon=True)
        acknowledger.start()
        try:
            for chunk in reader:
                if chunk.data is not None:
                    self._take(chunk.data)
        finally:
            with self._changed:
                self._complete = True
                self._changed.notify_all()
            acknowledger.join()
        if self._failure is not None:
            raise self._failure

    def _take(self, data: Any) -> None:
        limits = self._service.settings
        nbytes = data.get_total_buffer_size()  # not `nbytes`, which follows offsets that nobody has checked yet
        if nbytes > limits.max_batch_bytes:
            raise errors.ResourceLimit(
                f"a record batch has at most {limits.max_batch_bytes} bytes, this one {nbytes}: send smaller ones"
            )
        batch = message.validate(data)
        sizes = message.sizes(batch)
        largest = sizes if isinstance(sizes, int) else int(sizes.max(initial=0))
        if largest > limits.max_message_bytes:
            raise errors.ResourceLimit(f"a message has at most {limits.max_message_bytes} bytes, one of these has {largest}")
        if not isinstance(sizes, int):
            sizes = sizes.astype(np.min_scalar_type(largest))
        payload = reading.store(batch)
        nbytes = sum(len(part) for part in payload)
        self._service.admit(nbytes)
        if self._request["op"] == "enqueue":
            durable = message.any_durable(batch)
            command: c.Command = c.Enqueue(self._request["queue"], batch.num_rows, sizes, payload, durable)
        else:
            command = c.StageMessages(self._request["stage"], self._request["queue"], batch.num_rows, sizes, payload)
        reply, end = self._service.submit_nowait(command)
        self._batches += 1
        self._messages += batch.num_rows
        acknowledgement = {"batches": self._batches, "messages": self._messages}
        if reply is not None:
            acknowledgement["next"] = reply
        with self._changed:
            self._pending.append((end, nbytes, acknowledgement))
            self._pending_bytes += nbytes
            self._changed.notify_all()
            while self._pending_bytes > UNACKNOWLEDGED_BYTES and self._failure is None:
                self._changed.wait()
        if self._failure is not None:
            raise self._failure

    def _acknowledge(self) -> None:
        """Tell the sender of everything that has become durable, in one word, until the stream is complete."""
        journal = self._service.journal
        try:
            while True:
                with self._changed:
                    while not self._pending and not self._complete:
                        self._changed.wait()
                    if not self._pending:
                        return
                    oldest = self._pending[0][0]
                journal.wait(oldest)
                with self._changed:
                    while self._pending and self._pending[0][0] <= journal.durable:
                        _, nbytes, last = self._pending.popleft()
                        self._pending_bytes -= nbytes
                    self._changed.notify_all()
                self._writer.write(json.dumps(last).encode())
        except Exception as error:  # the sender went away, or the journal failed: the receiving side reports it
            with self._changed:
                self._failure = error
                self._changed.notify_all()
