"""Faults (U3): clients that are slow, many, large or broken, and a process that dies. Messages and other clients continue."""

from __future__ import annotations

import http.client
import http.client as http_client
import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine.columns.limits import MAX_NAME
from penstock.broker_core.http_plane import plane as plane_module
from penstock.broker_core.http_plane.answers import Planes
from penstock.broker_core.http_plane.plane import THREADS, HttpPlane
from penstock.broker_core.http_plane.web.bodies import MAX_BODY_BYTES
from penstock.broker_core.http_plane.web.framing import MAX_HEAD_BYTES
from penstock.broker_core.settings.keys import Settings

from ..flight.helpers import browse, numbered, send
from ..flight.peers import Site
from ..waiting import until
from .helpers import Http

TIMEOUT_S = 1.0
MOST_CONNECTIONS = 250
RECEIVE_BUFFER = 4096
UNENDED = b"POST /api/v1/hello HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: 9\r\n\r\n{"


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    folder = tmp_path_factory.mktemp("broker") / "data"
    with Broker(folder, fsync="never", http_request_timeout_s=TIMEOUT_S, http_max_connections=MOST_CONNECTIONS) as running:
        yield running


def connect(http: Http) -> socket.socket:
    return socket.create_connection((http.host, http.port), timeout=30)


def ended(connection: socket.socket) -> bytes:
    """Octets that come until the broker closes the connection."""
    answer = b""
    try:
        while piece := connection.recv(65536):
            answer += piece
    except ConnectionResetError:
        pass
    return answer


@pytest.mark.parametrize(
    "begun",
    [
        b"",
        b"GET / HT",
        b"GET / HTTP/1.1\r\nhost: localhost\r\n",
        UNENDED,
    ],
)
def test_a_request_that_never_comes_to_its_end_ends(http: Http, begun: bytes) -> None:
    """Slowloris: a byte now and then keeps no connection."""
    assert http.get("/health/live").status == 200  # the process is there
    with connect(http) as slow:
        start = time.monotonic()
        slow.sendall(begun)
        drip = threading.Event()

        def go_on() -> None:
            while not drip.wait(0.1):
                try:
                    slow.send(b"x" if begun else b"")
                except OSError:
                    return

        thread = threading.Thread(target=go_on)
        thread.start()
        answer = ended(slow)
        drip.set()
        thread.join()
        assert b" 200 " not in answer
        assert time.monotonic() - start >= TIMEOUT_S


def test_a_request_behind_another_that_never_comes_to_its_end_ends(http: Http) -> None:
    """Its head came with a complete request, and is read when that request is answered."""
    with connect(http) as slow:
        slow.sendall(b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n" + UNENDED)
        assert ended(slow).count(b"HTTP/1.1 ") == 1


def test_what_is_too_large_is_refused_before_it_is_kept(http: Http) -> None:
    large = http.ask("POST", "/api/v1/hello", b" " * (MAX_BODY_BYTES + 1), content_type="application/json")
    assert (large.status, large.code) == (413, "TOO_LARGE")
    with connect(http) as chunked:
        chunked.sendall(b"POST /api/v1/hello HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n")
        try:
            for _ in range(2 * MAX_BODY_BYTES // 65536):
                chunked.sendall(b"10000\r\n" + b" " * 65536 + b"\r\n")
        except OSError:
            pass
        assert ended(chunked)[:13] in (b"HTTP/1.1 413 ", b"")  # a reset may overtake the answer
    for request in (b"GET /" + b"x" * MAX_HEAD_BYTES, b"GET / HTTP/1.1\r\nhost: localhost\r\nx: " + b"x" * MAX_HEAD_BYTES):
        with connect(http) as headers:
            headers.sendall(request)
            assert ended(headers)[:13] == b"HTTP/1.1 431 "
    assert http.call("hello").status == 200


@pytest.mark.parametrize(
    "octets",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",  # TLS
        b"AMQP\x00\x01\x00\x00",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        b"GET / HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n",
        b"POST / HTTP/1.1\r\nhost: localhost\r\ncontent-length: 2\r\ntransfer-encoding: chunked\r\n\r\n0\r\n\r\nGET /",
        b"POST /api/v1/hello HTTP/1.1\r\nhost: localhost\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n{}",
        b"GET /\x00 HTTP/1.1\r\nhost: localhost\r\n\r\n",
        os.urandom(2000),
    ],
)
def test_what_is_no_http_is_refused(http: Http, octets: bytes) -> None:
    with connect(http) as connection:
        connection.sendall(octets)
        connection.shutdown(socket.SHUT_WR)
        assert b" 200 " not in ended(connection)
    assert http.get("/health/live").status == 200


def test_two_hundred_browsers_at_once_and_messages_go_on(broker: Broker, http: Http) -> None:
    with Client(broker.url) as client:
        client.call("queue.declare", queue="busy")
        connections = [http.client_connection() for _ in range(200)]  # each keeps its own
        try:
            with ThreadPoolExecutor(32) as threads:
                before = list(threads.map(lambda connection: poll(connection), connections))
                send(client, "busy", numbered(100))
                again = list(threads.map(lambda connection: poll(connection), connections))
        finally:
            for connection in connections:
                connection.close()
        assert before + again == [200] * 400
        assert len(browse(client, "busy")) == 100


def poll(connection: http.client.HTTPConnection) -> int:
    connection.request("GET", "/api/v1/counts")
    answer = connection.getresponse()
    answer.read()
    return answer.status


def test_one_connection_too_many_is_served_and_the_one_idle_for_longest_is_closed(broker: Broker, http: Http) -> None:
    connections = [http.client_connection() for _ in range(MOST_CONNECTIONS)]
    try:
        assert [poll(connection) for connection in connections] == [200] * MOST_CONNECTIONS
        assert poll(connections[0]) == 200  # so that the second one is idle for longest
        assert http.get("/health/live").status == 200
        assert poll(connections[0]) == 200
        assert [poll(connection) for connection in connections[2:]] == [200] * (MOST_CONNECTIONS - 2)
        with pytest.raises((http_client.RemoteDisconnected, ConnectionError)):
            poll(connections[1])
    finally:
        for connection in connections:
            connection.close()


def alive(http: Http) -> bool:
    try:
        return http.get("/health/live").status == 200
    except OSError:
        return False


@pytest.fixture(scope="module")
def large_scrapes(broker: Broker) -> None:
    """Queues whose metrics exceed the kernel's buffers for an unread answer, so that the broker must keep the rest."""
    most_in_flight = int(Path("/proc/sys/net/ipv4/tcp_wmem").read_text().split()[2]) + 2 * RECEIVE_BUFFER
    with Client(broker.url) as client:
        for number in range(most_in_flight // 10_000):  # a queue has 20 lines, each with its name
            client.call("queue.declare", queue=f"scraped {number}".ljust(MAX_NAME, "\N{SNAIL}"))
    assert len(Http(broker.http_url).get("/metrics").body) > 1.5 * most_in_flight


def in_an_answer(http: Http) -> socket.socket:
    """Return a connection with an answer that the broker cannot finish, because the client does not read its metrics."""
    scraper = socket.socket()
    scraper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, RECEIVE_BUFFER)  # before it connects, or it has no effect
    scraper.settimeout(30)
    scraper.connect((http.host, http.port))
    scraper.sendall(b"GET /metrics HTTP/1.1\r\nhost: localhost\r\n\r\n")
    assert scraper.recv(12, socket.MSG_PEEK) == b"HTTP/1.1 200"
    return scraper


@pytest.mark.usefixtures("large_scrapes")
def test_scrapers_that_do_not_read_hold_up_nobody(http: Http) -> None:
    scrapers: list[socket.socket] = []
    try:
        while len(scrapers) < 40:  # more than threads anywhere
            scrapers.append(in_an_answer(http))
        assert http.get("/metrics").status == 200
        assert http.call("queue.list").status == 200
    finally:
        for scraper in scrapers:
            scraper.close()


@pytest.mark.usefixtures("large_scrapes")
def test_clients_that_go_away_in_an_answer_leave_nothing_behind(broker: Broker, http: Http) -> None:
    for _ in range(MOST_CONNECTIONS // 20 + 1):
        scrapers = [in_an_answer(http) for _ in range(20)]  # the broker is left with all but perhaps the last
        for scraper in scrapers:
            scraper.close()
    assert http.get("/metrics").status == 200
    assert "Traceback" not in broker.log()


def test_a_page_that_stays_open_leaves_nothing_in_the_process(site: Site, open_plane: HttpPlane) -> None:
    """As many requests as a page makes in ten minutes: a leak in one of them would be visible."""
    connection = Http(open_plane.url).client_connection()

    def look(rounds: int) -> None:
        for _ in range(rounds):
            for path in ("/api/v1/counts", "/api/v1/history", "/metrics", "/api/v1/queue.stat?queue=nowhere", "/nowhere"):
                connection.request("GET", path)
                connection.getresponse().read()

    look(20)
    pid = open_plane.pid
    assert pid is not None
    before, files = anonymous_bytes(pid), len(os.listdir(f"/proc/{pid}/fd"))
    look(200)
    assert anonymous_bytes(pid) - before < 2 << 20
    assert len(os.listdir(f"/proc/{pid}/fd")) <= files + 1
    connection.close()


def anonymous_bytes(pid: int) -> int:
    (line,) = (line for line in Path(f"/proc/{pid}/status").read_text().splitlines() if line.startswith("RssAnon"))
    return int(line.split()[1]) << 10


# --- the process


@pytest.fixture
def open_plane(site: Site) -> Iterator[HttpPlane]:
    running = HttpPlane(Settings(data=site.service.settings.data, http_port=0), site.access)
    running.open(site.service, site.plane.actions, Planes(None, {}))
    yield running
    running.close()


def test_nothing_is_started_before_somebody_comes(open_plane: HttpPlane) -> None:
    assert open_plane.pid is None
    assert Http(open_plane.url).get("/health/live").status == 200
    assert open_plane.pid is not None


def test_the_process_comes_back_after_kill_9(open_plane: HttpPlane, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plane_module, "LONGEST_PAUSE_S", 0.1)
    http = Http(open_plane.url)
    pids = set()
    for _ in range(3):
        until(lambda: alive(http), "a process serves")
        pid = open_plane.pid
        assert pid is not None
        assert http.call("queue.list").status == 200
        pids.add(pid)
        os.kill(pid, signal.SIGKILL)
        until(lambda pid=pid: open_plane.pid != pid, "the death of the process is noticed")  # type: ignore[misc]
    assert len(pids) == 3


def test_a_broker_stops_while_requests_are_open(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Running requests are answered; a silent client delays no other."""
    running = HttpPlane(Settings(data=site.service.settings.data, http_port=0), site.access)
    running.open(site.service, site.plane.actions, Planes(None, {}))
    http = Http(running.url)
    assert http.get("/health/live").status == 200
    arrived, go_on = threading.Event(), threading.Event()
    carry_out = site.plane.actions.carry_out

    def slow(*arguments: object) -> bytes:
        arrived.set()
        go_on.wait(30)
        return carry_out(*arguments)  # type: ignore[arg-type]

    monkeypatch.setattr(site.plane.actions, "carry_out", slow)
    with ThreadPoolExecutor(2) as threads, connect(http):
        asked = threads.submit(http.call, "queue.list")
        assert arrived.wait(30)
        closing = threads.submit(running.close)
        assert running._closing.wait(30)
        go_on.set()
        assert asked.result(30).status == 200
        closing.result(30)
    with pytest.raises(OSError):
        http.get("/health/live")


def test_a_process_that_does_not_listen_fills_its_pipe_and_nothing_else(open_plane: HttpPlane, site: Site) -> None:
    """A full pipe: answers wait in their own threads. The broker serves other clients, and stops."""
    http = Http(open_plane.url)
    assert alive(http)
    child, pid = open_plane._child, open_plane.pid
    assert child is not None
    assert pid is not None
    os.kill(pid, signal.SIGSTOP)
    answers = [threading.Thread(target=child.say, args=({"id": -1}, [bytes(1 << 20)])) for _ in range(THREADS)]
    for answer in answers:
        answer.start()
    assert any(answer.is_alive() for answer in answers)
    assert site.peer().call("queue.list") == {"queues": []}
    open_plane.close()
    for answer in answers:
        answer.join(30)
        assert not answer.is_alive()


def test_the_process_ends_with_a_broker_that_was_killed(tmp_path: Path) -> None:
    with Broker(tmp_path / "data", fsync="never") as broker:
        http = Http(broker.http_url)
        assert http.get("/health/live").status == 200
        broker.kill()
        broker.start()  # on the same port
        assert Http(broker.http_url).port == http.port
        assert http.get("/health/live").status == 200
        assert broker.log().count("Traceback") == 0
