"""A broker with users, in this process; its peers, and every request that they may be allowed."""

from __future__ import annotations

import base64
import json
import ssl
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyarrow import flight

from penstock.broker_core import errors
from penstock.broker_core.amqp import scram
from penstock.broker_core.client.discovery import this_host
from penstock.broker_core.flight_plane import FlightPlane
from penstock.broker_core.security import Access, Right, users_file
from penstock.broker_core.security.users import User, Users, credentials_of
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.settings.keys import Settings

from .helpers import BODY, batch_of, numbered


class Clock:
    """Seconds that the test advances. The users file is read once in each."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Site:
    """A broker with its Flight server, in this process, and the file of its users."""

    def __init__(self, folder: Path, tls: Callable[[], ssl.SSLContext] | None = None) -> None:
        self.clock = Clock()
        self.users_file = folder / "users.json"
        self.service = BrokerService(Settings(data=folder / "data", fsync="never"))
        self.access = Access(self.users_file, clock=self.clock, monotonic=self.clock)
        self.plane = FlightPlane(self.service, "127.0.0.1", 0, access=self.access, tls=tls)

    def edit(self, change: Callable[[Users], Users]) -> None:
        users_file.edit(self.users_file, change)
        self.clock.now += 1

    def user(self, name: str, *rights: Right, queue: str = "*", password: str = "secret") -> Peer:
        account = User(credentials_of(password, b"0123456789abcdef", scram.MIN_ITERATIONS))
        self.edit(lambda users: users.add(name, account).permit(name, queue, rights))
        return self.peer(basic(name, password))

    def peer(self, authorization: str | None = None, **tls: Any) -> Peer:
        return Peer(flight.connect(self.plane.url, **tls), authorization)

    def close(self) -> None:
        self.plane.close()
        self.service.close()


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


class Peer:
    """A client on pyarrow alone, to test the header."""

    def __init__(self, connection: flight.FlightClient, authorization: str | None) -> None:
        self.connection, self.authorization = connection, authorization

    @property
    def options(self) -> flight.FlightCallOptions:
        headers = [] if self.authorization is None else [(b"authorization", self.authorization.encode())]
        return flight.FlightCallOptions(timeout=30, headers=headers)

    def call(self, action: str, /, **fields: Any) -> dict[str, Any]:
        with translated():
            (answer,) = self.connection.do_action((action, json.dumps(fields).encode()), self.options)
        return dict(json.loads(answer.body.to_pybytes()))

    def get(self, **ticket: Any) -> list[dict[str, Any]]:
        with translated():
            table = self.connection.do_get(flight.Ticket(json.dumps(ticket).encode()), self.options).read_all()
        return list(table.to_pylist())

    def put(self, *bodies: bytes, **command: Any) -> None:
        self.put_batch(batch_of(bodies), **command)

    def put_batch(self, batch: pa.RecordBatch, **command: Any) -> None:
        with translated():
            writer, reader = self.put_stream(batch.schema, **command)
            try:
                writer.write_batch(batch)
                assert reader.read() is not None
            finally:
                writer.close()

    def put_stream(
        self, schema: pa.Schema = BODY, **command: Any
    ) -> tuple[flight.FlightStreamWriter, flight.FlightMetadataReader]:
        descriptor = flight.FlightDescriptor.for_command(json.dumps(command).encode())
        streams: tuple[Any, Any] = self.connection.do_put(descriptor, schema, self.options)
        return streams


class translated:
    """Raises the error of ours that a Flight error carries."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: Any, traceback: Any) -> None:
        if isinstance(error, flight.FlightError):
            raise errors.from_json(error.extra_info) from error


#: Each request on the queue "q", and its needs: a lease "held" with a batch, and a stage "s".
REQUESTS: dict[str, Callable[[Peer, str], Any]] = {
    "hello": lambda p, q: p.call("hello"),
    "broker.status": lambda p, q: p.call("broker.status"),
    "broker.journal": lambda p, q: p.call("broker.journal"),
    "connection.list": lambda p, q: p.call("connection.list"),
    "connection.close": lambda p, q: p.call("connection.close", id="amqp-0"),
    "user.list": lambda p, q: p.call("user.list"),
    "queue.options": lambda p, q: p.call("queue.options"),
    "queue.messages": lambda p, q: p.call("queue.messages", queue=q),
    "queue.messages archived": lambda p, q: p.call("queue.messages", queue=q, states=["archived"]),
    "message.trace": lambda p, q: p.call("message.trace", queue=q, id="1"),
    "audit.list": lambda p, q: p.call("audit.list", queue=q),
    "queue.declare": lambda p, q: p.call("queue.declare", queue=q),
    "queue.stat": lambda p, q: p.call("queue.stat", queue=q),
    "queue.explain": lambda p, q: p.call("queue.explain", queue=q),
    "queue.list": lambda p, q: p.call("queue.list"),
    "archive.status": lambda p, q: p.call("archive.status"),
    "exchange.declare": lambda p, q: p.call("exchange.declare", exchange=f"{q}.x"),
    "exchange.bind": lambda p, q: p.call("exchange.bind", exchange=f"{q}.x", queue=q),
    "exchange.unbind": lambda p, q: p.call("exchange.unbind", exchange=f"{q}.x", queue=q),
    "exchange.delete": lambda p, q: p.call("exchange.delete", exchange=f"{q}.x"),
    "exchange.list": lambda p, q: p.call("exchange.list"),
    "lease.list": lambda p, q: p.call("lease.list"),
    "enqueue": lambda p, q: p.put(b"x", op="enqueue", queue=q),
    "stage": lambda p, q: p.put(b"x", op="stage", queue=q, stage=f"s {q}"),
    "stage.publish": lambda p, q: p.call("stage.publish", stages=[f"s {q}"]),
    "stage.discard": lambda p, q: p.call("stage.discard", stages=[f"other {q}"]),
    "stage.published": lambda p, q: p.call("stage.published", kind="txn", id=q, number=1),
    "stage.list": lambda p, q: p.call("stage.list"),
    "browse": lambda p, q: p.get(op="browse", queue=q, states=["available", "acquired"], columns=["body"]),
    "browse archived": lambda p, q: p.get(op="browse", queue=q, states=["archived"], columns=["body"]),
    "archive": lambda p, q: p.get(op="archive", queue=q, path="../a.parquet", lineages=["b", 1], columns=["body"]),
    "archive.files": lambda p, q: p.call("archive.files", queue=q, lineages=["b", 1]),
    "archive.plan": lambda p, q: p.call("archive.plan", queue=q),
    "archive.plan archived": lambda p, q: p.call("archive.plan", queue=q, states=["archived"]),
    "browse.plan": lambda p, q: p.call("browse.plan", queue=q),
    "browse.plan archived": lambda p, q: p.call("browse.plan", queue=q, states=["archived"]),
    "lease.plan": lambda p, q: p.call("lease.plan", queue=q, lease=f"held {q}", run="r", epoch=1, after=0, batch=1),
    "batch": lambda p, q: p.get(op="batch", columns=["body"], **part(q)),
    "map": lambda p, q: p.get(op="map", host=this_host(), columns=["body"], **part(q)),
    "settle": lambda p, q: p.put(b"x", op="settle", stage=f"outcomes {q}", lease=f"held {q}"),
    "lease.renew": lambda p, q: p.call("lease.renew", lease=f"held {q}", epoch=1),
    "lease.settleRow": lambda p, q: p.call("lease.settleRow", lease=f"held {q}", sequence=0, outcome="accepted"),
    "lease.settle": lambda p, q: p.call("lease.settle", queue=q, lease=f"held {q}", run="r", epoch=None, finished=1),
    "lease.advance": lambda p, q: p.call("lease.advance", queue=q, lease=f"held {q}", run="r", epoch=None, finished=1),
    "lease.release": lambda p, q: p.call("lease.release", lease=f"held {q}", how="return"),
    "lease.setAside": lambda p, q: p.call("lease.setAside", lease=f"held {q}", epoch=1, batch=1, reasons={"why": [0]}),
    "lease.delete": lambda p, q: p.call("lease.delete", lease=f"held {q}"),
    "queue.alter": lambda p, q: p.call("queue.alter", queue=q, options={"maxAttempts": 3}),
    "queue.pause": lambda p, q: p.call("queue.pause", queue=q),
    "queue.resume": lambda p, q: p.call("queue.resume", queue=q),
    "queue.discard": lambda p, q: p.call("queue.discard", queue=q, sequence=0),
    "queue.redrive": lambda p, q: p.call("queue.redrive", queue=q),
    "queue.move": lambda p, q: p.call("queue.move", queue=q, target=f"{q}.other"),
    "queue.copy": lambda p, q: p.call("queue.copy", queue=q, target=f"{q}.other"),
    "queue.deadLetters": lambda p, q: p.call("queue.deadLetters", queue=q),
    "message.send": lambda p, q: p.call("message.send", queue=q, body="x"),
    "message.replace": lambda p, q: p.call("message.replace", queue=q, sequence=0, target=f"{q}.other"),
    "user.add": lambda p, q: p.call("user.add", user="nobody", password="x", replace=True),
    "user.remove": lambda p, q: p.call("user.remove", user="nobody"),
    "user.setRights": lambda p, q: p.call("user.setRights", user="nobody", pattern=q, rights=[]),
    "queue.purge": lambda p, q: p.call("queue.purge", queue=q),
    "queue.delete": lambda p, q: p.call("queue.delete", queue=q, force=True),
}
NOBODY = {
    "hello",
    "broker.status",
    "broker.journal",
    "connection.list",
    "connection.close",
    "queue.list",
    "queue.options",
    "archive.status",
    "exchange.list",
    "lease.list",
    "stage.list",
    "stage.published",
}  # which need no right
# Which name a lease or a stage and no queue: each user has names of its own.
BY_NAME = {"lease.renew", "lease.release", "lease.settleRow", "lease.delete", "lease.setAside", "batch", "map", "settle"}
BY_NAME |= {"stage.publish", "stage.discard"}
EVERYBODY = {*NOBODY, "queue.stat"}  # for users with any right on the queue
ALLOWED = {
    Right.SEND: {"enqueue", "stage", "stage.publish", "stage.discard", "message.send"},
    Right.RECEIVE: {"lease.advance", "lease.plan", "batch", "map", "lease.renew", "lease.settle", "settle", "lease.setAside"},
    Right.BROWSE: {"browse", "browse.plan", "archive.plan", "queue.messages", "queue.deadLetters", "message.trace"},
    Right.SETTLE: {"lease.release", "lease.settleRow", "lease.delete"},
    Right.REPLAY: {
        *("browse archived", "browse.plan archived", "archive.plan archived", "archive.files", "archive"),
        "queue.messages archived",
    },
    Right.ADMIN: {
        *("queue.declare", "queue.purge", "queue.delete", "queue.alter", "queue.pause", "queue.resume", "queue.redrive"),
        *("queue.discard", "queue.explain", "audit.list"),
        *("exchange.declare", "exchange.delete", "exchange.unbind"),
    },
}
SHIFTS = {"queue.move", "queue.copy"}  # need `admin` and `receive` on the one queue and `send` on the other
# The first needs `admin` on the exchange, `admin` and `send` on the queue; the second `admin` on everything.
USERS = {"user.list", "user.add", "user.remove", "user.setRights"}
SEVERAL = {*SHIFTS, "message.replace", "exchange.bind", *USERS}


def part(queue: str) -> dict[str, Any]:
    return {"lease": f"held {queue}", "run": "r", "epoch": 1, "batch": 1, "first": 0, "last": 9}


def furnish(site: Site, queue: str) -> None:
    """Fill a queue with messages of every state, a lease and stages, as a user with every right."""
    root = site.user("root", *Right)
    root.call("queue.declare", queue=queue)
    root.put(*numbered(20), op="enqueue", queue=queue)
    advance = {"queue": queue, "lease": f"held {queue}", "run": "r"}
    root.call("lease.advance", **advance, epoch=None, finished=0, fresh=True, messages=10)
    for stage in ("s", "other"):
        root.put(b"staged", op="stage", queue=queue, stage=f"{stage} {queue}")


def refused(peer: Peer, queue: str) -> set[str]:
    """Return the requests that a missing permission refused. Errors of the engine do not matter here."""
    result = set()
    for name, request in REQUESTS.items():
        try:
            request(peer, queue)
        except (errors.NotAllowed, errors.Unauthenticated):
            result.add(name)
        except errors.PenstockError:
            pass
    return result
