"""Who may ask for what over Flight (W3), over TLS, and what those hear who may not."""

from __future__ import annotations

import base64
import json
import logging
import socket
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme
from pyarrow import flight

from broker_core import errors
from broker_core.amqp import scram
from broker_core.config import Settings
from broker_core.flight_plane import FlightPlane
from broker_core.flight_plane.permissions import NEEDS
from broker_core.flight_plane.requests import ACTIONS, PUTS, TICKETS
from broker_core.security import Access, Right, quiet, store
from broker_core.security.attempts import FAILURES_OF_A_NAME
from broker_core.security.users import User, Users, credentials_of
from broker_core.service import BrokerService

from .helpers import BODY, batch_of, numbered


class Clock:
    """Seconds that pass when the test says so: the users file is looked at once in each."""

    def __init__(self) -> None:
        self.now = 1_800_000_000.0

    def __call__(self) -> float:
        return self.now


class Site:
    """A broker with its Flight server, in this process, and the file of its users."""

    def __init__(self, folder: Path, tls: tuple[bytes, bytes] | None = None) -> None:
        self.clock = Clock()
        self.users_file = folder / "users.json"
        self.service = BrokerService(Settings(data=folder / "data", fsync="never"))
        self.access = Access(self.users_file, clock=self.clock, monotonic=self.clock)
        self.plane = FlightPlane(self.service, "127.0.0.1", 0, access=self.access, tls=tls)

    def edit(self, change: Callable[[Users], Users]) -> None:
        store.edit(self.users_file, change)
        self.clock.now += 1

    def user(self, name: str, *rights: Right, queue: str = "*", password: str = "secret") -> Peer:
        kept = User(credentials_of(password, b"0123456789abcdef", scram.MIN_ITERATIONS))
        self.edit(lambda users: users.add(name, kept).permit(name, queue, rights))
        return self.peer(basic(name, password))

    def peer(self, authorization: str | None = None, **tls: Any) -> Peer:
        return Peer(flight.connect(self.plane.url, **tls), authorization)

    def close(self) -> None:
        self.plane.close()
        self.service.close()


def basic(name: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()


class Peer:
    """A client of pyarrow's own: the header is what is tested."""

    def __init__(self, connection: flight.FlightClient, authorization: str | None) -> None:
        self.connection, self.authorization = connection, authorization

    @property
    def options(self) -> flight.FlightCallOptions:
        headers = [] if self.authorization is None else [(b"authorization", self.authorization.encode())]
        return flight.FlightCallOptions(timeout=30, headers=headers)

    def call(self, action: str, **fields: Any) -> dict[str, Any]:
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


@pytest.fixture
def site(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    monkeypatch.setattr(quiet, "LINES", 10**9)  # one process has all the refusals of these tests
    running = Site(tmp_path)
    yield running
    running.close()


# --- the table

#: Each request on the queue "q", and what must be there: a lease "held" with a batch, and a stage "s".
REQUESTS: dict[str, Callable[[Peer, str], Any]] = {
    "hello": lambda p, q: p.call("hello"),
    "queue.declare": lambda p, q: p.call("queue.declare", queue=q),
    "queue.stat": lambda p, q: p.call("queue.stat", queue=q),
    "queue.list": lambda p, q: p.call("queue.list"),
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
    "browse": lambda p, q: p.get(op="browse", queue=q, states=["available", "acquired"], columns=["body"]),
    "browse archived": lambda p, q: p.get(op="browse", queue=q, states=["archived"], columns=["body"]),
    "lease.plan": lambda p, q: p.call("lease.plan", queue=q, lease=f"held {q}", run="r", epoch=1, after=0, batch=1),
    "batch": lambda p, q: p.get(op="batch", columns=["body"], **part(q)),
    "map": lambda p, q: p.get(op="map", columns=["body"], **part(q)),
    "settle": lambda p, q: p.put(b"x", op="settle", stage=f"outcomes {q}", lease=f"held {q}"),
    "lease.renew": lambda p, q: p.call("lease.renew", lease=f"held {q}", epoch=1),
    "lease.settleRow": lambda p, q: p.call("lease.settleRow", lease=f"held {q}", sequence=0, outcome="accepted"),
    "lease.settle": lambda p, q: p.call("lease.settle", queue=q, lease=f"held {q}", run="r", epoch=None, finished=1),
    "lease.advance": lambda p, q: p.call("lease.advance", queue=q, lease=f"held {q}", run="r", epoch=None, finished=1),
    "lease.release": lambda p, q: p.call("lease.release", lease=f"held {q}", how="return"),
    "lease.delete": lambda p, q: p.call("lease.delete", lease=f"held {q}"),
    "queue.alter": lambda p, q: p.call("queue.alter", queue=q, options={"maxAttempts": 3}),
    "queue.pause": lambda p, q: p.call("queue.pause", queue=q),
    "queue.resume": lambda p, q: p.call("queue.resume", queue=q),
    "queue.redrive": lambda p, q: p.call("queue.redrive", queue=q),
    "queue.move": lambda p, q: p.call("queue.move", queue=q, target=f"{q}.other"),
    "queue.copy": lambda p, q: p.call("queue.copy", queue=q, target=f"{q}.other"),
    "queue.purge": lambda p, q: p.call("queue.purge", queue=q),
    "queue.delete": lambda p, q: p.call("queue.delete", queue=q, force=True),
}
EVERYBODY = {"hello", "queue.list", "exchange.list", "lease.list", "queue.stat"}  # who has any right on the queue
ALLOWED = {
    Right.SEND: {"enqueue", "stage", "stage.publish", "stage.discard"},
    Right.RECEIVE: {"lease.advance", "lease.plan", "batch", "map", "lease.renew", "lease.settle", "settle"},
    Right.BROWSE: {"browse"},
    Right.SETTLE: {"lease.release", "lease.settleRow", "lease.delete"},
    Right.REPLAY: {"browse archived"},
    Right.ADMIN: {
        *("queue.declare", "queue.purge", "queue.delete", "queue.alter", "queue.pause", "queue.resume", "queue.redrive"),
        *("exchange.declare", "exchange.delete", "exchange.bind", "exchange.unbind"),
    },
}
SEVERAL = {"queue.move", "queue.copy"}  # need `admin` and `receive` on the one queue and `send` on the other


def part(queue: str) -> dict[str, Any]:
    return {"lease": f"held {queue}", "run": "r", "epoch": 1, "batch": 1, "first": 0, "last": 9}


def furnish(site: Site, queue: str) -> None:
    """A queue with messages of every state, a lease and stages, made by somebody who may everything."""
    root = site.user("root", *Right)
    root.call("queue.declare", queue=queue)
    root.put(*numbered(20), op="enqueue", queue=queue)
    advance = {"queue": queue, "lease": f"held {queue}", "run": "r"}
    root.call("lease.advance", **advance, epoch=None, finished=0, fresh=True, messages=10)
    for stage in ("s", "other"):
        root.put(b"staged", op="stage", queue=queue, stage=f"{stage} {queue}")


def refused(peer: Peer, queue: str) -> set[str]:
    """The requests that a permission kept from being carried out. What the engine says of the others does not matter here."""
    result = set()
    for name, request in REQUESTS.items():
        try:
            request(peer, queue)
        except (errors.NotAllowed, errors.Unauthenticated):
            result.add(name)
        except errors.PenstockError:
            pass
    return result


def test_every_request_has_a_line_in_the_table_and_in_this_test() -> None:
    known = {*ACTIONS, *TICKETS, *PUTS}
    assert set(NEEDS) == known
    assert {name.partition(" ")[0] for name in REQUESTS} == known
    assert EVERYBODY.union(SEVERAL, *ALLOWED.values()) == set(REQUESTS)


@pytest.mark.parametrize("right", Right)
def test_a_right_allows_its_requests_and_no_other(site: Site, right: Right) -> None:
    furnish(site, "orders.eu")
    alice = site.user("alice", right, queue="orders.*")
    assert refused(alice, "orders.eu") == set(REQUESTS) - EVERYBODY - ALLOWED[right]


def test_messages_go_to_another_queue_only_with_rights_on_both(site: Site) -> None:
    """Q13 Q20: who may send nowhere else cannot have messages moved there, nor as dead letters, nor back from there."""
    furnish(site, "orders")
    root = site.user("root", *Right)
    root.call("queue.declare", queue="mine")
    for rights in ({Right.ADMIN}, {Right.ADMIN, Right.RECEIVE}):
        alice = site.user("alice", *rights, queue="orders")
        for name in sorted(SEVERAL):
            with pytest.raises(errors.NotAllowed):
                alice.call(name, queue="orders", target="mine")
        for name in ("queue.alter", "queue.declare"):
            with pytest.raises(errors.NotAllowed):
                alice.call(name, queue="orders", options={"deadLetterQueue": "mine"})
        assert alice.call("queue.redrive", queue="orders") == {"redriven": 0, "stayed": 0}
    bob = site.user("bob", *Right, queue="*")
    assert bob.call("queue.move", queue="orders", target="mine", messages=3) == {"moved": 3, "full": False}
    root.call("queue.alter", queue="orders", options={"deadLetterQueue": "mine"})
    root.call("lease.settleRow", lease="held orders", sequence=0, outcome="rejected")
    eve = site.user("eve", *Right, queue="mine")
    with pytest.raises(errors.NotAllowed):
        eve.call("queue.redrive", queue="mine")
    assert bob.call("queue.redrive", queue="mine") == {"redriven": 1, "stayed": 0}


def test_all_rights_on_one_queue_are_none_on_another(site: Site) -> None:
    furnish(site, "orders")
    alice = site.user("alice", *Right, queue="mine")
    alice.call("queue.declare", queue="mine")
    assert refused(alice, "orders") == set(REQUESTS) - {"hello", "queue.list", "exchange.list", "lease.list"}
    assert [row["queue"] for row in alice.call("queue.list")["queues"]] == ["mine"]
    assert alice.call("lease.list") == {"leases": []}
    root = site.user("root", *Right)
    assert root.call("queue.stat", queue="orders")["acquired"] == 10
    assert [row["lease"] for row in root.call("lease.list")["leases"]] == ["held orders"]


def test_a_user_without_a_permission_may_say_hello(site: Site) -> None:
    furnish(site, "orders")
    bob = site.user("bob")
    assert refused(bob, "orders") == set(REQUESTS) - {"hello", "queue.list", "exchange.list", "lease.list"}
    assert bob.call("queue.list") == {"queues": []}


def test_a_lease_or_a_stage_of_another_queue_is_not_reached_by_naming_ones_own(site: Site) -> None:
    furnish(site, "orders")
    alice = site.user("alice", *Right, queue="mine")
    alice.call("queue.declare", queue="mine")
    named = {"queue": "mine", "lease": "held orders", "run": "r"}
    for request in (
        lambda: alice.call("lease.advance", **named, epoch=None, finished=0, fresh=True),
        lambda: alice.call("lease.plan", **named, epoch=1, after=0, batch=1),
        lambda: alice.call("lease.settle", **named, epoch=None, finished=1),
        lambda: alice.put(b"mine", op="stage", queue="mine", stage="s orders"),
        lambda: alice.call("stage.publish", stages=["not there", "s orders"]),
        lambda: alice.call("stage.discard", stages=["s orders"]),
    ):
        with pytest.raises(errors.NotAllowed):
            request()


def test_outcomes_are_published_by_who_may_receive_and_messages_by_who_may_send(site: Site) -> None:
    furnish(site, "q")
    receiver, sender = site.user("receiver", Right.RECEIVE), site.user("sender", Right.SEND)
    (row, *_) = receiver.get(op="batch", columns=["delivery"], **part("q"))
    outcome = pa.record_batch({"delivery": pa.array([row["delivery"]], pa.binary()), "outcome": ["rejected"]})
    for stage in ("mine", "mixed"):
        receiver.put_batch(outcome, op="settle", stage=stage, lease="held q")
    site.user("root", *Right).put(b"x", op="stage", queue="q", stage="mixed")
    for peer, stage in ((sender, "mine"), (sender, "mixed"), (receiver, "mixed")):
        with pytest.raises(errors.NotAllowed):
            peer.call("stage.publish", stages=[stage])
    assert receiver.call("stage.publish", stages=["mine"]) == {"published": 0, "repeated": False}


def test_what_is_not_there_and_what_is_not_permitted_are_answered_alike(site: Site) -> None:
    furnish(site, "orders")
    alice = site.user("alice", Right.SEND, queue="mine")

    def answer(request: str, queue: str) -> str:
        with pytest.raises(errors.NotAllowed) as error:
            REQUESTS[request](alice, queue)
        return str(error.value).replace(queue, "QUEUE")

    for request in set(REQUESTS) - {"hello", "queue.list", "exchange.list", "lease.list", "stage.publish", "stage.discard"}:
        assert answer(request, "orders") == answer(request, "nowhere"), request


def test_looking_at_the_archive_and_at_what_waits_are_two_rights(site: Site) -> None:
    furnish(site, "orders")
    looks = {"browse": Right.BROWSE, "replay": Right.REPLAY}
    for name, right in looks.items():
        peer = site.user(name, right, queue="orders")
        with pytest.raises(errors.NotAllowed):
            peer.get(op="browse", queue="orders", states=["available", "archived"], columns=["body"])
    both = site.user("both", *looks.values(), queue="orders")
    assert len(both.get(op="browse", queue="orders", states=["available", "archived"], columns=["body"])) == 10


# --- who is it?


def test_without_users_nothing_is_asked(site: Site) -> None:
    for peer in (site.peer(), site.peer(basic("who", "ever")), site.peer("Bearer x")):
        peer.call("queue.declare", queue="q")
        assert refused(peer, "nowhere") == set()


@pytest.mark.parametrize(
    "authorization",
    [None, "", "Basic", "Basic ?", "Basic " + base64.b64encode(b"alice").decode(), "Bearer", "Bearer x.y", "Digest x"],
)
def test_who_proves_no_name_is_told_nothing(site: Site, authorization: str | None) -> None:
    furnish(site, "orders")
    peer = site.peer(authorization)
    assert refused(peer, "orders") == set(REQUESTS)
    with pytest.raises(flight.FlightUnauthenticatedError):
        list(peer.connection.list_actions(peer.options))


def test_wrong_password_and_unknown_user_get_the_same_answer(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    site.user("alice", Right.SEND)
    said = []
    with caplog.at_level(logging.WARNING):
        for header in (basic("alice", "wr0ng"), basic("mallory", "wr0ng"), basic("alice", "")):
            with pytest.raises(flight.FlightUnauthenticatedError) as refusal:
                list(site.peer(header).connection.do_action(("hello", b"{}"), site.peer(header).options))
            said.append((refusal.value.extra_info, str(refusal.value).partition("gRPC")[0]))
    assert len(set(said)) == 1
    lines = [record.getMessage() for record in caplog.records if record.name == "penstock.security"]
    assert len(lines) == 3
    assert all("127.0.0.1" in line and "wr0ng" not in line for line in lines)
    assert "'mallory'" in lines[1]


def test_a_refused_request_is_logged_with_user_and_peer(site: Site, caplog: pytest.LogCaptureFixture) -> None:
    alice = site.user("alice", Right.SEND, queue="mine")
    with caplog.at_level(logging.WARNING), pytest.raises(errors.NotAllowed):
        alice.call("queue.purge", queue="orders\nall is well")
    (line,) = [record.getMessage() for record in caplog.records if record.name == "penstock.security"]
    assert "alice at ipv4:127.0.0.1" in line
    assert "\n" not in line


def test_guessing_is_stopped_and_who_is_in_goes_on(site: Site) -> None:
    alice = site.user("alice", Right.SEND)
    alice.call("hello")
    guesses = [basic("alice", f"guess {number}") for number in range(FAILURES_OF_A_NAME)]
    for guess in guesses:
        with pytest.raises(errors.Unauthenticated, match="wrong user or password"):
            site.peer(guess).call("hello")
    with pytest.raises(errors.Unauthenticated, match="wait a minute"):
        site.peer(basic("alice", "one more")).call("hello")
    alice.call("hello")


def test_a_token_stands_for_its_user(site: Site) -> None:
    alice = site.user("alice", Right.SEND, queue="mine")
    listed = alice.call("queue.list")
    token = site.peer("Bearer " + site.access.token("alice"))
    assert token.call("queue.list") == listed
    with pytest.raises(errors.NotAllowed):
        token.call("queue.purge", queue="mine")
    site.user("alice", password="another")
    with pytest.raises(errors.Unauthenticated, match="log in again"):
        token.call("hello")


def test_anonymous_has_what_is_permitted_to_it(site: Site) -> None:
    furnish(site, "news")
    site.edit(lambda users: users.permit("anonymous", "news", [Right.BROWSE]))
    nobody = site.peer()
    assert refused(nobody, "news") == set(REQUESTS) - EVERYBODY - ALLOWED[Right.BROWSE]
    with pytest.raises(errors.Unauthenticated, match="give user and password"):
        nobody.call("queue.purge", queue="news")
    assert refused(nobody, "orders") == set(REQUESTS) - {"hello", "queue.list", "exchange.list", "lease.list"}


def test_a_password_in_clear_over_a_network_is_not_taken(tmp_path: Path, site: Site) -> None:
    address = own_address()
    if address is None:
        pytest.skip("this machine has loopback only")
    site.user("alice", Right.SEND)
    site.access.refresh()
    plane = FlightPlane(site.service, address, 0, access=site.access)
    try:
        for password in ("secret", "wrong"):
            with pytest.raises(errors.Unauthenticated, match="not taken in clear over a network"):
                Peer(flight.connect(plane.url), basic("alice", password)).call("hello")
        Peer(flight.connect(plane.url), "Bearer " + site.access.token("alice")).call("hello")
    finally:
        plane.close()


def own_address() -> str | None:
    """An address of this machine that is not loopback; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("192.0.2.1", 9))
        except OSError:
            return None
        address = str(probe.getsockname()[0])
    return None if address.startswith("127.") else address


# --- changes while it runs


def test_a_sender_is_stopped_in_the_middle_and_what_was_acknowledged_stays(site: Site) -> None:
    furnish(site, "orders")
    alice = site.user("alice", Right.SEND, Right.BROWSE, queue="orders")
    writer, reader = alice.put_stream(op="enqueue", queue="orders")
    writer.write_batch(batch_of([b"acknowledged"]))
    assert json.loads(reader.read().to_pybytes())["messages"] == 1
    site.edit(lambda users: users.revoke("alice", "orders", [Right.SEND]))
    writer.write_batch(batch_of([b"too late"]))
    with pytest.raises(errors.NotAllowed), translated():
        writer.close()
    bodies = [row["body"] for row in alice.get(op="browse", queue="orders", first=20, columns=["body"])]
    assert bodies == [b"acknowledged"]


@pytest.mark.parametrize("change", ["revoked", "removed", "another password"])
def test_a_reader_is_stopped_in_the_middle(site: Site, change: str) -> None:
    furnish(site, "orders")
    root = site.user("root", *Right)
    large = [pa.array([b"x" * 1_000_000] * 8, pa.binary())]
    writer, reader = root.put_stream(op="enqueue", queue="orders")
    for _ in range(8):  # more than gRPC sends ahead of a reader
        writer.write_batch(pa.record_batch(large, schema=BODY))
    writer.done_writing()
    while reader.read() is not None:
        pass
    writer.close()
    alice = site.user("alice", Right.BROWSE, queue="orders")
    ticket = flight.Ticket(json.dumps({"op": "browse", "queue": "orders", "columns": ["body"]}).encode())
    with translated():
        stream = alice.connection.do_get(ticket, alice.options)
        stream.read_chunk()
    if change == "revoked":
        site.edit(lambda users: users.revoke("alice", "orders", [Right.BROWSE]))
    elif change == "removed":
        site.edit(lambda users: users.remove("alice"))
    else:
        site.user("alice", Right.BROWSE, queue="orders", password="another")
    with pytest.raises((errors.NotAllowed, errors.Unauthenticated)), translated():
        stream.read_all()


def test_the_first_user_closes_a_broker_that_was_open(site: Site) -> None:
    nobody = site.peer()
    nobody.call("queue.declare", queue="q")
    site.user("alice", Right.SEND)
    assert refused(nobody, "q") == set(REQUESTS)


# --- TLS


def test_tls_is_spoken_and_nothing_else(tmp_path: Path) -> None:
    ca = trustme.CA()
    issued = ca.issue_cert("127.0.0.1")
    site = Site(tmp_path, (b"".join(pem.bytes() for pem in issued.cert_chain_pems), issued.private_key_pem.bytes()))
    try:
        assert site.plane.url.startswith("grpc+tls://127.0.0.1:")
        roots = ca.cert_pem.bytes()
        assert site.peer(tls_root_certs=roots).call("hello")["flight"] == site.plane.url
        alice = site.user("alice", Right.SEND, Right.BROWSE)
        site.service.submit(declare("q"))
        trusted = site.peer(alice.authorization, tls_root_certs=roots)
        trusted.put(b"over TLS", op="enqueue", queue="q")
        assert trusted.get(op="browse", queue="q", columns=["body"]) == [{"body": b"over TLS"}]
        plain = flight.connect(site.plane.url.replace("grpc+tls", "grpc+tcp"))
        for stranger in (Peer(plain, None), site.peer(tls_root_certs=trustme.CA().cert_pem.bytes())):
            with pytest.raises(flight.FlightUnavailableError):
                list(stranger.connection.do_action(("hello", b"{}"), stranger.options))
    finally:
        site.close()


def declare(queue: str) -> Any:
    from broker_core.engine.commands import DeclareQueue

    return DeclareQueue(queue)
