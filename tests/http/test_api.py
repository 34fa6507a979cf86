"""The API in JSON (U3): the broker's table of actions, over HTTP, described in OpenAPI."""

from __future__ import annotations

import json
from pathlib import Path
from urllib.parse import urlencode

import pytest

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.actions.actions import ACTIONS
from penstock.broker_core.actions.fields import specs_of
from penstock.broker_core.client.flight import Client
from penstock.broker_core.http_plane import health, statuses
from penstock.broker_core.http_plane.answers import Planes
from penstock.broker_core.http_plane.plane import HttpPlane
from penstock.broker_core.http_plane.web.guards import HEADERS
from penstock.broker_core.security import Right
from penstock.broker_core.service import alarms

from ..flight.helpers import browse, numbered, send
from ..flight.peers import Site, furnish
from ..flight.valid_requests import VALID
from .helpers import Http, basic


def test_every_action_and_every_field_is_described() -> None:
    for name, action in ACTIONS.items():
        assert action.summary.endswith("."), name
        assert all(spec.about for spec in specs_of(action.operation.request).values()), name


def test_an_action_answers_what_flight_answers(broker: Broker, http: Http) -> None:
    with Client(broker.url) as client:
        assert http.call("queue.declare", {"queue": "orders", "options": {"maxAttempts": 3}}).json == {
            "queue": "orders",
            "created": True,
        }
        send(client, "orders", numbered(3))
        assert http.get("/api/v1/queue.stat?queue=orders").json == client.call("queue.stat", queue="orders")
        assert http.call("queue.stat", {"queue": "orders"}).json["available"] == 3
        assert http.call("queue.purge", {"queue": "orders"}).json == {"purged": 3}
        assert browse(client, "orders") == []
        assert http.get("/api/v1/browse.plan?queue=orders&states=available&states=acquired&first=1").json == {"parts": []}


def test_a_get_changes_nothing(site: Site, guarded: Http) -> None:
    """An action with GET does not change the log."""
    furnish(site, "orders")
    alice = basic("root")
    for action in sorted(name for name, action in ACTIONS.items() if action.reads):
        end = site.service.journal.end
        fields = {name: value for name, value in VALID[action].items() if value is not None}
        pairs = [(name, item) for name, value in fields.items() for item in (value if isinstance(value, list) else [value])]
        query = urlencode([(name, item if isinstance(item, str) else json.dumps(item)) for name, item in pairs])
        query = query.replace("Q", "orders")
        answer = guarded.get(f"/api/v1/{action}?{query}", authorization=alice)
        assert answer.status in (200, 404, 502), (action, answer)  # there is no archive here
        assert site.service.journal.end == end, action
    for action in sorted(name for name, action in ACTIONS.items() if not action.reads):
        answer = guarded.get(f"/api/v1/{action}", authorization=alice)
        assert (answer.status, answer.code, answer.headers["allow"]) == (405, "METHOD_NOT_ALLOWED", "POST")


@pytest.mark.parametrize("right", [None, *Right])
def test_every_action_without_its_right_is_refused_as_over_flight(site: Site, guarded: Http, right: Right | None) -> None:
    """W3: same rule, same words, for each action of the table and each right alone."""
    furnish(site, "orders")
    alice = site.user("alice", *([] if right is None else [right]), queue="mine")
    for action, fields in VALID.items():
        for queue in ("orders", "nowhere"):
            named = json.loads(json.dumps(fields).replace("Q", queue))
            try:
                alice.call(action, **named)
                message = None
            except (errors.NotAllowed, errors.Unauthenticated) as error:
                message = str(error)
            except errors.PenstockError:
                message = None
            answer = guarded.call(action, named, authorization=basic("alice"))
            if message is None:
                assert answer.status not in (401, 403), (action, answer)
            else:
                assert (answer.status, answer.json["error"]["message"]) == (403, message), action


def test_errors_have_a_status_and_a_code(http: Http) -> None:
    for action, fields, status, message in (
        ("queue.stat", {"queue": "nowhere"}, 404, "there is no queue 'nowhere'"),
        ("queue.stat", {}, 400, "field 'queue' is missing"),
        ("queue.stat", {"queue": 5}, 400, "field 'queue' must be str"),
        ("queue.stat", {"queue": "q", "more": 1}, 400, "unknown field 'more'"),
        ("queue.stat", ["q"], 400, "not a JSON object"),
        ("queue.blow", {}, 404, "there is no action 'queue.blow'"),
        ("lease.renew", {"lease": "l", "epoch": 1}, 404, "no lease"),
    ):
        answer = http.post(f"/api/v1/{action}", fields)
        assert (answer.status, message in answer.json["error"]["message"]) == (status, True), answer
    assert http.ask("POST", "/api/v1/queue.list", b"{", content_type="application/json").code == "INVALID_REQUEST"
    assert http.get("/api/v1/queue.stat?queue=a&queue=b").status == 400
    nowhere = http.get("/api/queues")
    assert (nowhere.status, nowhere.code, "/api/v1/openapi.json" in nowhere.json["error"]["message"]) == (404, "NOT_FOUND", True)
    assert http.ask("PUT", "/api/v1/queue.list").status == 405


def test_every_kind_of_error_has_a_status_of_its_own_side() -> None:
    kinds = [errors.PenstockError]
    for kind in kinds:
        kinds += kind.__subclasses__()
        status = statuses.status_of(kind)
        assert (status // 100 == 5) == (kind.fault != "caller" or issubclass(kind, errors.ResourceLimit)), kind


def test_no_answer_can_be_taken_for_a_page(http: Http) -> None:
    """XSS: markup in a name stays text."""
    evil = "<script>alert(1)</script>"
    http.call("queue.declare", {"queue": evil})
    for answer in (
        http.get("/api/v1/queue.list"),
        http.get("/api/v1/queue.stat?queue=%3Cscript%3E"),
        http.get("/%3Cscript%3E"),
        http.get("/api/v1/%3Cscript%3E"),
        http.get("/", host="<script>"),
    ):
        assert answer.headers["content-type"] == "application/json"
        assert {name: answer.headers[name] for name in HEADERS} == HEADERS
        assert answer.headers["cache-control"] == "no-store"


def test_the_page_comes_with_its_policy(http: Http) -> None:
    page = http.get("/")
    assert (page.status, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert {name: page.headers[name] for name in HEADERS} == HEADERS
    again = http.get("/", if_none_match=page.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    for path in ("/page/../plane.py", "/page/%2e%2e/plane.py", "/page//etc/passwd", "/page/nothing.js"):
        assert http.get(path).status == 404, path


def test_while_the_broker_recovers_it_lives_and_is_not_ready(site: Site, tmp_path: Path) -> None:
    """U3: a probe that ends a broker for reading its journal would never see it ready."""
    from penstock.broker_core.settings.keys import Settings

    plane = HttpPlane(Settings(data=tmp_path / "data", http_port=0), site.access)
    try:
        http = Http(plane.url)
        assert (http.get("/health/live").status, http.get("/health/ready").status) == (200, 503)
        assert http.get("/health/ready").json["reasons"][0]["name"] == "recovering"
        assert (http.call("queue.list").status, http.call("queue.list").code) == (503, "RECOVERING")
        plane.open(site.service, site.plane.actions, Planes(None, {}))
        assert http.get("/health/ready").json == {"ready": True, "reasons": [], "warnings": []}
    finally:
        plane.close()


def test_a_broker_that_cannot_take_messages_is_not_ready_and_says_why(site: Site, guarded: Http) -> None:
    """U3: an alarm about the whole broker is a reason, and one about a queue is not: a probe has no login."""
    assert guarded.get("/health/ready").status == 200
    site.service.alarms.set(alarms.ARCHIVE_BEHIND, "the archive is an hour behind")
    site.service.alarms.set(alarms.ARCHIVE_FAILING, "its table cannot be written", "secret")
    site.service.alarms.set(alarms.CERTIFICATE_ENDS, "in two days")
    answer = guarded.get("/health/ready")
    assert answer.status == 503
    assert [(reason["name"], reason["text"]) for reason in answer.json["reasons"]] == [
        (alarms.ARCHIVE_BEHIND, "the archive is an hour behind")
    ]
    assert [warning["name"] for warning in answer.json["warnings"]] == [alarms.CERTIFICATE_ENDS]
    site.service.alarms.set(alarms.ARCHIVE_BEHIND, None)
    assert guarded.get("/health/ready").status == 200
    assert "secret" not in guarded.get("/health/ready").body.decode()


def test_a_broker_whose_lock_nobody_gives_back_does_not_live(site: Site, guarded: Http, monkeypatch: pytest.MonkeyPatch) -> None:
    """U3: and while it does not, its other answers hang without a harm to this one."""
    assert guarded.get("/health/live").status == 200
    monkeypatch.setattr(health, "LIVE_S", 0.2)
    with site.service._lock:
        answer = guarded.get("/health/live")
        assert (answer.status, answer.json) == (503, {"live": False})
    assert guarded.get("/health/live").status == 200
