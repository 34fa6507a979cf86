"""Ends of requests: a request that two parsers may read differently is refused, and its connection closed (RFC 9112)."""

from __future__ import annotations

import random
import socket

import pytest

from penstock import Broker
from penstock.broker_core.http_plane.web.framing import MAX_HEADERS

from .helpers import Http

BEHIND = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\n\r\n"  # the request that is smuggled


def post(*headers: bytes, body: bytes = b"", line: bytes = b"POST /api/v1/hello HTTP/1.1") -> bytes:
    return b"\r\n".join([line, b"host: localhost", b"content-type: application/json", *headers, b"", body])


CODES = {400: b"MALFORMED_REQUEST", 431: b"HEADERS_TOO_LARGE", 501: b"UNKNOWN_ENCODING"}

#: Requests whose end is not certain, each with the status that refuses it.
AMBIGUOUS = {
    "both lengths": (post(b"content-length: 2", b"transfer-encoding: chunked", body=b"0\r\n\r\n"), 400),
    "both lengths, the other way": (post(b"transfer-encoding: chunked", b"content-length: 5", body=b"0\r\n\r\n"), 400),
    "both lengths that agree": (post(b"content-length: 5", b"transfer-encoding: chunked", body=b"0\r\n\r\n"), 400),
    "two lengths": (post(b"content-length: 2", b"content-length: 3", body=b"{}"), 400),
    "one length twice": (post(b"content-length: 2", b"Content-Length: 2", body=b"{}"), 400),
    "a list of lengths": (post(b"content-length: 2, 3", body=b"{}"), 400),
    "a length with a sign": (post(b"content-length: +2", body=b"{}"), 400),
    "a length in hex": (post(b"content-length: 0x2", body=b"{}"), 400),
    "a negative length": (post(b"content-length: -2", body=b"{}"), 400),
    "an empty length": (post(b"content-length:", body=b"{}"), 400),
    "a length too long": (post(b"content-length: " + b"9" * 21), 400),
    "chunked and identity": (post(b"transfer-encoding: chunked, identity", body=b"0\r\n\r\n"), 501),
    "chunked twice": (post(b"transfer-encoding: chunked, chunked", body=b"0\r\n\r\n"), 501),
    "chunked in two headers": (post(b"transfer-encoding: chunked", b"transfer-encoding: chunked", body=b"0\r\n\r\n"), 400),
    "compressed": (post(b"transfer-encoding: gzip, chunked", body=b"0\r\n\r\n"), 501),
    "a vertical tab before chunked": (post(b"transfer-encoding: \x0bchunked", body=b"0\r\n\r\n"), 400),
    "a space before the colon": (post(b"content-length : 2", body=b"{}"), 400),
    "a folded header": (post(b"x: 1", b" content-length: 2", body=b"{}"), 400),
    "a folded encoding": (post(b"transfer-encoding:", b"\tchunked", body=b"0\r\n\r\n"), 400),
    "LF after a header": (post(b"x: 1\ncontent-length: 2", body=b"{}"), 400),
    "LF at the end of the head": (b"GET /health/live HTTP/1.1\r\nhost: localhost\n\n", 400),
    "LF alone": (b"GET /health/live HTTP/1.1\nhost: localhost\n\n", 400),
    "CR in a header": (post(b"x: 1\rcontent-length: 2", body=b"{}"), 400),
    "LF after a chunk's size": (post(b"transfer-encoding: chunked", body=b"2\n{}\r\n0\r\n\r\n"), 400),
    "LF in a chunk's extension": (post(b"transfer-encoding: chunked", body=b"2;\n{}\r\n0\r\n\r\n"), 400),
    "LF after a chunk": (post(b"transfer-encoding: chunked", body=b"2\r\n{}\n0\r\n\r\n"), 400),
    "a chunk longer than its size": (post(b"transfer-encoding: chunked", body=b"1\r\n{}\r\n0\r\n\r\n"), 400),
    "LF at the end of the chunks": (post(b"transfer-encoding: chunked", body=b"2\r\n{}\r\n0\r\n\n"), 400),
    "LF in a trailer": (post(b"transfer-encoding: chunked", body=b"2\r\n{}\r\n0\r\nx: 1\n\r\n"), 400),
    "a folded trailer": (post(b"transfer-encoding: chunked", body=b"2\r\n{}\r\n0\r\nx: 1\r\n y\r\n\r\n"), 400),
    "a chunk size with a sign": (post(b"transfer-encoding: chunked", body=b"+2\r\n{}\r\n0\r\n\r\n"), 400),
    "an empty chunk size": (post(b"transfer-encoding: chunked", body=b"\r\n{}\r\n0\r\n\r\n"), 400),
    "a space in the target": (post(b"content-length: 2", body=b"{}", line=b"POST /a b HTTP/1.1"), 400),
    "no version": (b"GET /\r\n\r\n", 400),
    "an empty line first": (b"\r\n" + BEHIND, 400),
    "two hosts": (b"GET /health/live HTTP/1.1\r\nhost: a\r\nhost: b\r\n\r\n", 400),
    "no host": (b"GET /health/live HTTP/1.1\r\n\r\n", 400),
    "two credentials": (post(b"authorization: Bearer a", b"authorization: Bearer b", b"content-length: 2", body=b"{}"), 400),
    "too many headers": (post(*[b"a:"] * (MAX_HEADERS + 1)), 431),
    "too many headers, without an end": (b"GET / HTTP/1.1\r\n" + b"a:\r\n" * 5000, 431),
    "chunks that are all extension": (
        post(b"transfer-encoding: chunked", body=(b"1;" + b"x" * 20_000 + b"\r\n{\r\n") * 10 + b"0\r\n\r\n"),
        400,
    ),
}


def sent(http: Http, *pieces: bytes) -> bytes:
    """Send pieces; return the answers, until the connection is closed."""
    answered = b""
    with socket.create_connection((http.host, http.port), timeout=30) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        try:
            for piece in pieces:
                connection.sendall(piece)
            while received := connection.recv(65536):
                answered += received
        except ConnectionError:  # a reset, since more came than was read
            pass
    return answered


@pytest.mark.parametrize("case", AMBIGUOUS)
def test_a_request_whose_end_is_not_certain_is_refused_and_the_connection_closed(http: Http, case: str) -> None:
    """In one piece and in several: data after a refused request is never parsed as a request."""
    request, status = AMBIGUOUS[case]
    cut = random.Random(case).randrange(1, len(request))
    for pieces in ((request + BEHIND,), (request[:cut], request[cut:] + BEHIND)):
        answered = sent(http, *pieces)
        assert answered.count(b"HTTP/1.1 ") <= 1
        assert b'"live"' not in answered
        if len(request) < 10_000:  # else a reset may overtake the answer
            assert answered.startswith(b"HTTP/1.1 %d " % status)
            assert CODES[status] in answered
            assert b"connection: close" in answered.lower()


LAST = b"connection: close"
ALLOWED = {
    "a length": post(b"content-length: 2", LAST, body=b"{}"),
    "chunks": post(b"transfer-encoding: Chunked", LAST, body=b"1\r\n{\r\n1\r\n}\r\n0\r\n\r\n"),
    "chunks with extensions": post(b"transfer-encoding: chunked", LAST, body=b'2;a=b;c="d"\r\n{}\r\n0;e\r\n\r\n'),
    "trailers": post(b"transfer-encoding: chunked", LAST, body=b"2\r\n{}\r\n0\r\nx: 1\r\ny: 2\r\n\r\n"),
    "lines of JSON end in LF": post(b"content-length: 5", LAST, body=b"{\n\r\n}"),
    "LF in chunks": post(b"transfer-encoding: chunked", LAST, body=b"5\r\n{\n\r\n}\r\n0\r\n\r\n"),
    "HTTP/1.0": post(b"content-length: 2", body=b"{}", line=b"POST /api/v1/hello HTTP/1.0"),
    "HTTP/1.0 that wants to continue": post(
        b"content-length: 2", b"connection: keep-alive", body=b"{}", line=b"POST /api/v1/hello HTTP/1.0"
    ),
    "an upgrade": post(b"content-length: 2", b"connection: upgrade, close", b"upgrade: h2c", body=b"{}"),
    "many headers": post(b"content-length: 2", LAST, *[b"a:"] * (MAX_HEADERS - 5), body=b"{}"),
}


@pytest.mark.parametrize("case", ALLOWED)
def test_a_request_whose_end_is_certain_is_answered(http: Http, case: str) -> None:
    request = ALLOWED[case]
    for pieces in ((request,), tuple(request[at : at + 1] for at in range(len(request)))):
        answered = sent(http, *pieces)
        assert answered.startswith(b"HTTP/1.1 200 "), answered
        assert b'"broker"' in answered or b'"version"' in answered


def test_thousands_of_requests_behind_each_other_are_answered_in_order(http: Http) -> None:
    """And one that is malformed ends them."""
    many = 3000
    answered = sent(http, BEHIND * many + post(b"content-length: 2", LAST, body=b"{}") + BEHIND)
    assert answered.count(b"HTTP/1.1 200 ") == many + 1
    assert answered.rindex(b'"live"') < answered.index(b'"version"')
    answered = sent(http, BEHIND * 10 + AMBIGUOUS["both lengths"][0] + BEHIND * 10)
    assert answered.count(b"HTTP/1.1 200 ") == 10
    assert answered.count(b"HTTP/1.1 400 ") == 1


def test_a_malformed_end_of_a_request_that_is_answered_already_leaves_no_traceback(http: Http, broker: Broker) -> None:
    """The answer came before the body, or comes while it is refused."""
    chunked = b"GET /health/live HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n"
    for path in (b"/health/live", b"/api/v1/counts", b"/metrics", b"/nowhere"):
        request = chunked.replace(b"/health/live", path)
        with socket.create_connection((http.host, http.port), timeout=30) as connection:
            connection.sendall(request)
            assert connection.recv(9) == b"HTTP/1.1 "
            connection.sendall(b"no chunk\r\n")
            assert b"HTTP/1.1 " not in sent_rest(connection)
        sent(http, request + b"no chunk\r\n")
    assert http.get("/health/live").status == 200
    assert "Traceback" not in broker.log()


def sent_rest(connection: socket.socket) -> bytes:
    answered = b""
    try:
        while received := connection.recv(65536):
            answered += received
    except ConnectionError:
        pass
    return answered
