"""Foreign pages and logins (U3, W3): requests that a foreign page can cause, passwords, cookies and tokens."""

from __future__ import annotations

import pytest

from penstock.broker_core.http_plane.answers import Planes
from penstock.broker_core.http_plane.plane import HttpPlane
from penstock.broker_core.http_plane.web.sessions import Sessions
from penstock.broker_core.security import Right
from penstock.broker_core.settings.keys import Settings

from ..flight.peers import Site, furnish
from .helpers import Answer, Http, basic, cookie_of


def test_only_a_name_that_leads_here_by_right_is_answered(http: Http) -> None:
    """DNS rebinding: a foreign page whose own name leads to this address gets nothing."""
    for host in ("evil.example", f"evil.example:{http.port}", "localhost.evil.example", "127.0.0.1.evil.example", "", "[::1"):
        answer = http.call("queue.list", host=host) if host else http.ask("GET", "/", host="")
        assert answer.status in (400, 421), host
        assert b"queues" not in answer.body
    for host in ("localhost", f"LOCALHOST:{http.port}", "127.0.0.1", "10.1.2.3:80", "[::1]:8816", "[fe80::1]"):
        assert http.call("queue.list", host=host).status == 200, host


def test_a_page_of_another_origin_changes_nothing(http: Http) -> None:
    ours = f"http://{http.host}:{http.port}"
    assert http.call("queue.declare", {"queue": "kept"}, origin=ours, sec_fetch_site="same-origin").status == 200
    for headers in (
        {"origin": "http://evil.example"},
        {"origin": "null"},
        {"origin": f"http://{http.host}:1"},
        {"sec_fetch_site": "cross-site"},
        {"origin": ours, "sec_fetch_site": "same-site"},
    ):
        answer = http.call("queue.delete", {"queue": "kept"}, **headers)
        assert (answer.status, answer.code) == (403, "FOREIGN_ORIGIN"), headers
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data", ""):
        assert http.post("/api/v1/queue.delete", {"queue": "kept"}, content_type=kind).code == "NOT_JSON"
    assert http.get("/api/v1/queue.stat?queue=kept").status == 200
    preflight = http.ask("OPTIONS", "/api/v1/queue.delete", origin="http://evil.example")
    assert not [name for name in preflight.headers if name.startswith("access-control")]


def log_in(http: Http, user: str, password: str = "secret", **headers: str) -> Answer:
    return http.post("/api/v1/session", {"user": user, "password": password}, **headers)


def test_a_login_gives_a_cookie_that_no_script_reads_and_a_token_that_no_foreign_page_reads(site: Site, guarded: Http) -> None:
    furnish(site, "orders")
    site.user("alice", Right.BROWSE, Right.ADMIN, queue="orders")
    assert guarded.get("/api/v1/session").json == {"user": None, "rights": {}, "login": True, "csrf": None}
    begun = log_in(guarded, "alice")
    assert begun.status == 200
    assert begun.json["rights"] == {"orders": ["admin", "browse"]}
    assert {"HttpOnly", "SameSite=strict", "Path=/"} <= set(begun.headers["set-cookie"].split("; "))
    cookie, csrf = cookie_of(begun), begun.json["csrf"]
    assert guarded.get("/api/v1/session", cookie=cookie).json == begun.json
    assert [row["queue"] for row in guarded.get("/api/v1/queue.list", cookie=cookie).json["queues"]] == ["orders"]
    for wrong in ("", "x", csrf[:-1], csrf + "x", "ü"):
        answer = guarded.call("queue.pause", {"queue": "orders"}, cookie=cookie, x_csrf_token=wrong)
        assert (answer.status, answer.code) == (403, "CSRF_TOKEN"), wrong
    assert guarded.call("queue.pause", {"queue": "orders"}, cookie=cookie, x_csrf_token=csrf).json["changed"]
    assert guarded.ask("DELETE", "/api/v1/session", cookie=cookie).code == "CSRF_TOKEN"
    ended = guarded.ask("DELETE", "/api/v1/session", cookie=cookie, x_csrf_token=csrf)
    assert (ended.status, "Max-Age=0" in ended.headers["set-cookie"]) == (204, True)
    assert guarded.get("/api/v1/queue.list", cookie=cookie).status == 401


def test_a_cookie_from_before_the_login_is_worth_nothing(site: Site, guarded: Http) -> None:
    """Session fixation: a planted cookie does not get the login, and each login ends the previous one."""
    site.user("alice", *Right)
    laid_out = cookie_of(log_in(guarded, "alice"))
    name = laid_out.partition("=")[0]
    for cookie in (laid_out, f"{name}=chosen"):
        begun = log_in(guarded, "alice", cookie=cookie)
        assert cookie_of(begun) not in (laid_out, f"{name}=chosen")
        assert guarded.get("/api/v1/queue.list", cookie=cookie).status == 401
        assert guarded.get("/api/v1/queue.list", cookie=cookie_of(begun)).status == 200


def test_a_change_of_the_user_ends_its_sessions(site: Site, guarded: Http) -> None:
    site.user("alice", *Right)
    cookie = cookie_of(log_in(guarded, "alice"))
    site.user("alice", *Right, password="another")
    assert guarded.get("/api/v1/queue.list", cookie=cookie).status == 401
    assert guarded.get("/api/v1/session", cookie=cookie).json["user"] is None
    site.edit(lambda users: users.remove("alice").add("bob", users.users["alice"]))
    assert log_in(guarded, "alice", "another").status == 401


def test_basic_and_bearer_are_taken_as_over_flight(site: Site, guarded: Http) -> None:
    site.user("alice", Right.SEND, queue="orders")
    assert guarded.get("/api/v1/hello", authorization=basic("alice")).status == 200
    assert guarded.get("/api/v1/hello", authorization=f"Bearer {site.access.token('alice')}").status == 200
    for wrong in (basic("alice", "wrong"), basic("nobody"), "Bearer x", "Basic x", "Digest x", "Basic"):
        answer = guarded.get("/api/v1/hello", authorization=wrong)
        assert (answer.status, answer.code) == (401, "UNAUTHENTICATED"), wrong
        assert answer.headers["www-authenticate"].startswith("Bearer")  # a browser opens no login window
    assert guarded.get("/api/v1/hello").status == 401


def test_guessing_a_password_is_slow_as_on_the_other_planes(site: Site, guarded: Http) -> None:
    """W3: by login and by Basic alike, they count together; a password that was right before is let through."""
    site.user("alice", *Right)
    site.user("bob", *Right, password="of bob")
    assert log_in(guarded, "bob", "of bob").status == 200
    for number in range(5):
        assert log_in(guarded, "alice", f"p{number}").status == 401
        assert guarded.get("/api/v1/hello", authorization=basic("alice", f"q{number}")).status == 401
    refused = log_in(guarded, "alice")
    assert (refused.status, "too many logins" in refused.json["error"]["message"]) == (401, True)
    assert log_in(guarded, "bob", "of bob").status == 200


@pytest.mark.parametrize(
    "body", [b"{", b"[" * 16_000, b"[]", b"{}", b'{"user": 1, "password": "x"}', b'{"user": "a:b", "password": "x"}']
)
def test_a_login_that_is_none_is_refused(site: Site, guarded: Http, body: bytes) -> None:
    site.user("alice", *Right)
    assert guarded.ask("POST", "/api/v1/session", body, content_type="application/json").code == "INVALID_REQUEST"


def test_sessions_end_when_idle_when_old_and_when_there_are_too_many() -> None:
    now = [0.0]
    sessions = Sessions(2, 2, 10.0, 25.0, lambda: now[0])
    first, _ = sessions.begin("alice", "t")
    for now[0] in (9.0, 18.0, 25.0):
        assert sessions.find(first) is not None
    now[0] = 25.1
    assert sessions.find(first) is None
    names = [sessions.begin(user, "t")[0] for user in ("alice", "bob", "carl")]
    assert [sessions.find(name) is not None for name in names] == [False, True, True]
    now[0] += 10.1
    assert sessions.find(names[1]) is None
    assert sessions.find(None) is None


def test_who_logs_in_again_and_again_ends_only_sessions_of_its_own() -> None:
    sessions = Sessions(10, 2, 100.0, 100.0)
    bob, _ = sessions.begin("bob", "t")
    first, second = (sessions.begin("alice", "t")[0] for _ in range(2))
    assert sessions.find(first) is not None  # and so the second is the one that was idle for longer
    third, _ = sessions.begin("alice", "t")
    assert [sessions.find(name) is not None for name in (bob, first, second, third)] == [True, True, False, True]


def test_a_user_has_so_many_logins_at_once(site: Site) -> None:
    """The limit of the setting, over HTTP."""
    site.user("alice", *Right)
    running = HttpPlane(Settings(data=site.service.settings.data, http_port=0, http_sessions_per_user=2), site.access)
    running.open(site.service, site.plane.actions, Planes(None, {}))
    try:
        http = Http(running.url)
        cookies = [cookie_of(log_in(http, "alice")) for _ in range(3)]
        assert [http.get("/api/v1/queue.list", cookie=cookie).status for cookie in cookies] == [401, 200, 200]
    finally:
        running.close()


def test_a_session_asks_for_another_token_once_when_its_own_is_old() -> None:
    now = [0.0]
    sessions = Sessions(2, 2, 10_000.0, 10_000.0, lambda: now[0])
    _, session = sessions.begin("alice", "t")
    assert not sessions.wants_renewal(session)
    now[0] = 601.0
    assert [sessions.wants_renewal(session) for _ in range(2)] == [True, False]
