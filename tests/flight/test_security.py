"""Logins over Flight (W3): accepted users, the errors of refused callers, changes while the broker runs, and TLS."""

from __future__ import annotations

import base64
import json
import logging
import socket
import ssl
import time
from collections.abc import Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
import trustme
from pyarrow import flight

from penstock.broker_core import errors
from penstock.broker_core.client import discovery
from penstock.broker_core.client.discovery import Endpoint
from penstock.broker_core.client.flight import Client
from penstock.broker_core.flight_plane import FlightPlane, receiver
from penstock.broker_core.security import Right
from penstock.broker_core.security.failed_logins import FAILURES_OF_A_NAME

from ..waiting import until
from .helpers import BODY, batch_of
from .peers import ALLOWED, EVERYBODY, NOBODY, REQUESTS, Peer, Site, basic, furnish, refused, translated

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
    texts = []
    with caplog.at_level(logging.WARNING):
        for header in (basic("alice", "wr0ng"), basic("mallory", "wr0ng"), basic("alice", "")):
            with pytest.raises(flight.FlightUnauthenticatedError) as refusal:
                list(site.peer(header).connection.do_action(("hello", b"{}"), site.peer(header).options))
            texts.append((refusal.value.extra_info, str(refusal.value).partition("gRPC")[0]))
    assert len(set(texts)) == 1
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
    assert refused(nobody, "orders") == set(REQUESTS) - NOBODY


def test_a_password_in_clear_over_a_network_is_not_taken(tmp_path: Path, site: Site) -> None:
    address = own_address()
    if address is None:
        pytest.skip("this machine has loopback only")
    site.user("alice", Right.SEND)
    site.access.refresh()
    plane = FlightPlane(site.service, address, 0, access=site.access)
    try:
        for password in ("secret", "wrong"):
            with pytest.raises(errors.Unauthenticated, match="not accepted unencrypted over a network"):
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


@pytest.mark.parametrize("older", [False, True])
@pytest.mark.parametrize("command", [{"op": "stage", "write": "w", "attempt": 1}, {"op": "enqueue"}])
def test_what_was_taken_before_its_user_changed_is_not_sent_again(
    site: Site, monkeypatch: pytest.MonkeyPatch, command: dict[str, Any], older: bool
) -> None:
    """A client that has not read the acknowledgement logs in again only if no batch was taken. The same is true of an old client
    at a new broker, and of a new client at an older broker, which asks for a login in the middle."""
    furnish(site, "orders")
    site.user("alice", Right.SEND, Right.BROWSE)
    if older:
        monkeypatch.setattr(receiver, "final", lambda taken: nullcontext())
    logins: list[str] = []

    def discover(*_: Any) -> Endpoint:
        logins.append("again")
        return Endpoint(site.plane.url, site.access.token("alice"))

    monkeypatch.setattr(discovery, "discover", discover)

    def stored() -> int:
        (stat,) = (row for row in root.call("queue.list")["queues"] if row["queue"] == "orders")
        return int(stat["available"]) + sum(stage["messages"] for stage in root.call("stage.list")["stages"])

    root = site.user("root", *Right)
    begun = stored()

    def batches() -> Iterator[pa.RecordBatch]:
        yield batch_of([b"taken"])
        until(lambda: stored() == begun + 1, "the first batch is stored")
        site.user("alice", Right.SEND, Right.BROWSE, password="another")
        yield batch_of([b"refused"])
        until(lambda: not any("DoPut" in connection["calls"] for connection in site.plane.connections()), "the call has ended")
        for _ in range(3):  # fewer than `window`: no acknowledgement is read before a write fails
            time.sleep(0.1)
            yield batch_of([b"not sent"])

    with Client("amqp://127.0.0.1:1", known=Endpoint(site.plane.url, site.access.token("alice"))) as client:
        with pytest.raises(errors.Unauthenticated if older else errors.NotAllowed, match="log in again"):
            client.put({"queue": "orders", **command}, BODY, batches())
        assert (stored() - begun, logins) == (1, [])
        # The next one logs in: nothing of it was taken.
        client.put({"op": "enqueue", "queue": "orders"}, BODY, [batch_of([b"a"]), batch_of([b"b"])])
    assert (stored() - begun, logins) == (3, ["again"])


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
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.set_alpn_protocols(["h2"])
    issued.configure_cert(context)
    site = Site(tmp_path, lambda: context)
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
    from penstock.broker_core.engine.commands import DeclareQueue

    return DeclareQueue(queue)
