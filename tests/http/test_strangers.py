"""Clients before their login share one budget of bytes, connections and time. Probes and users are served."""

from __future__ import annotations

import resource
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from penstock.broker_core.http_plane.answers import Planes
from penstock.broker_core.http_plane.plane import THREADS, HttpPlane
from penstock.broker_core.http_plane.web.bodies import MAX_BODY_BYTES, MAX_STRANGER_BODY_BYTES
from penstock.broker_core.http_plane.web.connections import DISCARDED_BYTES
from penstock.broker_core.http_plane.web.shares import MAX_STRANGERS
from penstock.broker_core.security import Right
from penstock.broker_core.security.passwords import CHECKS_AT_ONCE
from penstock.broker_core.settings.keys import Settings

from ..flight.peers import Site
from ..waiting import until
from .helpers import Answer, Http, basic, cookie_of
from .strangers import MORE_BYTES, connections, peak_bytes

SILENT, UPLOADS = 2000, 500
PROBE_S = 1.0  # the timeoutSeconds of a probe


@pytest.fixture(scope="module", autouse=True)
def many_files() -> Iterator[None]:
    """Both ends of thousands of connections, in two processes that have this limit each."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(hard, 3 * SILENT)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.fixture(autouse=True)
def no_tracebacks(capfd: pytest.CaptureFixture[str]) -> Iterator[None]:
    """Nothing that a stranger does is a mistake of the process."""
    yield
    assert "Traceback" not in capfd.readouterr().err


@contextmanager
def serving(site: Site, **settings: Any) -> Iterator[HttpPlane]:
    running = HttpPlane(Settings(data=site.service.settings.data, http_port=0, **settings), site.access)
    running.open(site.service, site.plane.actions, Planes(None, {}))
    try:
        yield running
    finally:
        running.close()


@pytest.fixture
def patient(no_tracebacks: None, site: Site) -> Iterator[HttpPlane]:
    """A plane that closes nothing for its slowness while a test lasts."""
    with serving(site, http_request_timeout_s=120) as running:
        yield running


def head(length: int, *headers: str, method: str = "POST", path: str = "/api/v1/queue.list") -> bytes:
    lines = [f"{method} {path} HTTP/1.1", "host: localhost", "content-type: application/json", f"content-length: {length}"]
    return "\r\n".join([*lines, *headers, "", ""]).encode()


def answer_of(connection: socket.socket) -> Answer:
    """The next answer on a connection."""
    file = connection.makefile("rb")
    status = int(file.readline().split()[1])
    headers = dict(line.decode().strip().split(": ", 1) for line in iter(file.readline, b"\r\n"))
    return Answer(status, headers, file.read(int(headers.get("content-length", 0))))


def is_open(connection: socket.socket) -> bool:
    """True if a connection without a request is open."""
    connection.setblocking(False)
    try:
        return connection.recv(1) != b""
    except BlockingIOError:
        return True
    except ConnectionError:
        return False


def probes(plane: HttpPlane, timeout_s: float = 30) -> list[int]:
    """Send three probes in a row, each on a connection of its own; return the statuses."""
    statuses = []
    for path in ("/health/live", "/health/ready", "/health/live"):
        with socket.create_connection(("127.0.0.1", plane.port), timeout=timeout_s) as probe:
            probe.sendall(f"GET {path} HTTP/1.1\r\nhost: 10.1.2.3:8816\r\n\r\n".encode())
            statuses.append(answer_of(probe).status)
    return statuses


def test_probes_are_answered_beside_thousands_of_silent_connections(site: Site, patient: HttpPlane) -> None:
    """And so are users: with a password, a token, and a new connection for each request."""
    site.user("alice", *Right)
    assert Http(patient.url).get("/health/live").status == 200  # the process is there
    with ExitStack() as opened:
        silent = list(connections(patient, SILENT, opened))
        until(lambda: not is_open(silent[-MAX_STRANGERS - 1]), "all of them are accepted")
        assert probes(patient, PROBE_S) == [200] * 3
        for _ in range(2):
            assert Http(patient.url).get("/metrics", authorization=basic("alice")).status == 200
        assert Http(patient.url).call("queue.list", authorization=f"Bearer {site.access.token('alice')}").status == 200
        assert is_open(silent[-1])


@pytest.mark.parametrize(
    ("has_users", "headers"),
    [(False, []), (True, []), (True, [f"authorization: {basic('alice', 'wrong')}"]), (True, ["authorization: Bearer x"])],
    ids=["no users", "no login", "wrong password", "wrong token"],
)
def test_bodies_that_never_end_take_little_memory(site: Site, patient: HttpPlane, has_users: bool, headers: list[str]) -> None:
    """One byte less than the largest body: with 500 of them the process once used 450 MiB."""
    if has_users:
        site.user("alice", *Right)
    user = {"authorization": basic("alice")} if has_users else {}
    assert Http(patient.url).call("queue.list", **user).status == 200
    assert probes(patient) == [200] * 3
    before = peak_bytes(patient)
    body = bytes(MAX_BODY_BYTES - 2)
    with ExitStack() as opened:
        for connection in connections(patient, UPLOADS, opened):
            with suppress(OSError):
                connection.sendall(head(MAX_BODY_BYTES - 1, *headers))
                connection.sendall(body)
        assert Http(patient.url).call("queue.list", **user).status == 200
        assert probes(patient) == [200] * 3
    assert peak_bytes(patient) - before < MORE_BYTES


def small_body(length: int) -> bytes:
    return head(length, path="/api/v1/session") + bytes(length - 1)


HELD: dict[str, Callable[[], bytes]] = {
    "heads without an end": lambda: b"GET / HTTP/1.1\r\nx: " + b"x" * (32 << 10),
    "many small headers": lambda: b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 99,
    "small bodies": lambda: small_body(MAX_STRANGER_BODY_BYTES),
    "unread bodies behind an answer": lambda: head(DISCARDED_BYTES, path="/health/live") + bytes(100_000),
    "chunks without an end": lambda: (
        b"POST /api/v1/session HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n1;x=" + b"x" * (30 << 10)
    ),
    "trailers without an end": lambda: (
        b"POST /api/v1/session HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n0\r\nx: " + b"x" * (30 << 10)
    ),
    "requests behind each other": lambda: b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n" * 300,
    "answers that are not read": lambda: b"GET /api/v1/openapi.json HTTP/1.1\r\nhost: localhost\r\n\r\n" * 20,
}


@pytest.mark.parametrize("case", HELD)
def test_what_strangers_hold_in_other_ways_is_little_as_well(site: Site, patient: HttpPlane, case: str) -> None:
    site.user("alice", *Right)
    assert Http(patient.url).get("/api/v1/openapi.json").status == 200
    assert Http(patient.url).get("/metrics", authorization=basic("alice")).status == 200
    before = peak_bytes(patient)
    sent = HELD[case]()
    with ExitStack() as opened:
        for connection in connections(patient, MAX_STRANGERS + 50, opened, receive_buffer=4096):
            connection.setblocking(False)
            with suppress(OSError):
                connection.send(sent)
        assert Http(patient.url).get("/metrics", authorization=basic("alice")).status == 200
        assert probes(patient) == [200] * 3
    assert peak_bytes(patient) - before < MORE_BYTES


def test_a_body_is_read_only_after_its_sender_is_known(site: Site, patient: HttpPlane) -> None:
    """The answer comes without a byte of the body, and 100-continue only where the body is wanted."""
    site.user("alice", *Right)
    large = MAX_BODY_BYTES - 1
    for headers, status in (
        ([], 401),
        ([f"authorization: {basic('alice', 'wrong')}"], 401),
        ([f"authorization: {basic('alice')}"], 100),
    ):
        with socket.create_connection(("127.0.0.1", patient.port), timeout=30) as connection:
            connection.sendall(head(large, "expect: 100-continue", *headers))
            answer = answer_of(connection)
            assert answer.status == status
            if status == 401:
                assert answer.headers["connection"] == "close"  # the next bytes may be a body or a request
                assert connection.recv(1) == b""
            else:
                connection.sendall(b"{}".ljust(large))
                assert answer_of(connection).status == 200


def test_before_a_login_a_body_is_small(site: Site, patient: HttpPlane) -> None:
    site.user("alice", *Right)
    http = Http(patient.url)
    for body in (b" " * (MAX_STRANGER_BODY_BYTES + 1), b" " * MAX_BODY_BYTES):
        answer = http.ask("POST", "/api/v1/session", body, content_type="application/json")
        assert (answer.status, answer.code) == (413, "TOO_LARGE")
        assert "before a login a request has at most 16,384 bytes" in answer.json["error"]["message"]
    padded = b'{"queue": "orders"}'.ljust(MAX_BODY_BYTES)
    answer = http.ask("POST", "/api/v1/queue.declare", padded, content_type="application/json", authorization=basic("alice"))
    assert answer.status == 200
    longest = "\U00010330" * 1024  # in the longest form that JSON has for it
    site.user("bob", *Right, password=longest)
    begun = http.post("/api/v1/session", {"user": "bob", "password": longest})
    assert begun.status == 200
    shown = {"cookie": cookie_of(begun), "x_csrf_token": begun.json["csrf"], "content_type": "application/json"}
    assert http.ask("POST", "/api/v1/queue.declare", padded, **shown).status == 200


def test_password_checks_that_wait_leave_the_broker_to_users(site: Site, patient: HttpPlane) -> None:
    """As many logins as the broker answers requests, and more: all wait for their turn to be checked."""
    site.user("alice", *Right)
    http = Http(patient.url, authorization=basic("alice"))
    assert http.get("/metrics").status == 200
    turn = site.access._passwords.turn
    with ExitStack() as opened:
        for _ in range(CHECKS_AT_ONCE):
            opened.enter_context(turn)
        logins = list(connections(patient, 2 * THREADS, opened))
        for number, login in enumerate(logins):
            login.sendall(head(2, f"authorization: {basic(f'user {number}')}") + b"{}")
        assert http.get("/metrics").status == 200
        assert probes(patient) == [200] * 3
    assert http.call("queue.list").status == 200


def test_a_client_without_a_name_that_has_rights_has_the_small_body(site: Site, patient: HttpPlane) -> None:
    """Also where the broker had no users before."""
    assert Http(patient.url).call("queue.list").status == 200
    site.edit(lambda users: users.permit("anonymous", "open", frozenset(Right)))
    site.user("alice", *Right)
    http = Http(patient.url)
    assert http.call("queue.declare", {"queue": "open"}).status == 200
    large = b'{"queue": "open"}'.ljust(MAX_BODY_BYTES)
    assert http.ask("POST", "/api/v1/queue.stat", large, content_type="application/json").code == "TOO_LARGE"
    assert http.call("queue.stat", {"queue": "open"}).status == 200


def test_a_refused_body_that_still_comes_leaves_the_connection_usable(site: Site, patient: HttpPlane) -> None:
    """The client reads why it was refused, instead of a reset, and its next request is answered."""
    site.user("alice", *Right)
    with socket.create_connection(("127.0.0.1", patient.port), timeout=30) as connection:
        connection.sendall(head(MAX_BODY_BYTES) + bytes(MAX_BODY_BYTES))
        assert answer_of(connection).status == 401
        connection.sendall(head(2, f"authorization: {basic('alice')}") + b"{}")
        assert answer_of(connection).status == 200
        connection.sendall(head(DISCARDED_BYTES + 1))
        answer = answer_of(connection)
        assert (answer.status, answer.headers["connection"]) == (401, "close")
    for last in (head(MAX_BODY_BYTES, "connection: close"), head(MAX_BODY_BYTES).replace(b"HTTP/1.1", b"HTTP/1.0")):
        with socket.create_connection(("127.0.0.1", patient.port), timeout=30) as connection:
            connection.sendall(last)
            connection.sendall(bytes(MAX_BODY_BYTES))
            assert answer_of(connection).status == 401
            assert connection.recv(1) == b""  # the end, and no reset


def test_a_client_of_another_address_keeps_its_place(patient: HttpPlane) -> None:
    """A probe of Kubernetes comes from its node: an address that holds everything loses its own connections, not this one."""
    with ExitStack() as opened:
        node = opened.enter_context(
            socket.create_connection(("127.0.0.1", patient.port), timeout=30, source_address=("127.0.0.2", 0))
        )
        silent = list(connections(patient, 2 * MAX_STRANGERS, opened))
        until(lambda: not is_open(silent[0]), "they take each other's places")
        node.sendall(b"GET /health/live HTTP/1.1\r\nhost: node\r\n\r\n")
        assert answer_of(node).status == 200


def test_one_user_cannot_take_the_places_and_the_memory_of_another(site: Site) -> None:
    """More connections and more bytes than there are cost the user who has the most of them."""
    site.user("alice", *Right)
    site.user("bob", *Right)
    with serving(site, http_request_timeout_s=120, http_max_connections=64) as plane, ExitStack() as opened:
        (bob,) = connections(plane, 1, opened)
        bob.sendall(head(2, f"authorization: {basic('bob')}") + b"{}")
        assert answer_of(bob).status == 200
        before = peak_bytes(plane)
        for connection in connections(plane, 100, opened):
            with suppress(OSError):
                connection.sendall(head(MAX_BODY_BYTES - 1, f"authorization: {basic('alice')}"))
                connection.sendall(bytes(MAX_BODY_BYTES - 2))
        bob.sendall(head(MAX_BODY_BYTES, f"authorization: {basic('bob')}") + b"{}".ljust(MAX_BODY_BYTES))
        assert answer_of(bob).status == 200
        assert peak_bytes(plane) - before < MORE_BYTES


def test_a_change_of_users_is_noticed_whatever_was_remembered(site: Site, patient: HttpPlane) -> None:
    http = Http(patient.url)
    assert http.call("queue.list").status == 200  # without users
    site.user("alice", *Right)
    assert http.call("queue.list").status == 401
    assert http.call("queue.list", authorization=basic("alice")).status == 200
    site.user("alice", *Right, password="another")
    for _ in range(2):
        assert http.call("queue.list", authorization=basic("alice")).status == 401
    assert http.call("queue.list", authorization=basic("alice", "another")).status == 200
