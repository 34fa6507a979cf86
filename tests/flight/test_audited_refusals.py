"""U11: each request without its right is refused and recorded, and so is each refused login, through every door."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from pyarrow import flight

from penstock.broker_core import errors
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.client.flight import Client
from penstock.broker_core.http_plane.answers import Planes
from penstock.broker_core.http_plane.plane import HttpPlane
from penstock.broker_core.security import Right
from penstock.broker_core.security.audit import AuditFilter
from penstock.broker_core.settings.keys import Settings

from ..http.helpers import Http
from .helpers import batch_of
from .peers import REQUESTS, Site, basic, furnish, refused
from .valid_requests import VALID


@pytest.fixture
def http(site: Site) -> Iterator[Http]:
    plane = HttpPlane(Settings(data=site.service.settings.data, http_port=0), site.access)
    plane.open(site.service, site.plane.actions, Planes(None, {}))
    yield Http(plane.url)
    plane.close()


def entries(site: Site, count: int = 1000) -> list[dict[str, Any]]:
    """Return the recorded refusals, the oldest first."""
    return site.service.audit.entries(AuditFilter(outcome="refused"), count)[::-1]


def test_each_request_over_flight_without_its_right_is_recorded_once(site: Site) -> None:
    furnish(site, "orders")
    alice = site.user("alice", *Right, queue="mine")
    names = refused(alice, "orders")
    assert {"browse", "enqueue", "lease.advance", "queue.messages", "queue.purge"} <= names
    recorded = entries(site)
    assert [entry["action"] for entry in recorded] == [name.partition(" ")[0] for name in REQUESTS if name in names]
    assert {(entry["user"], entry["outcome"]) for entry in recorded} == {("alice", "refused")}
    by_action = {entry["action"]: entry for entry in reversed(recorded)}
    assert [by_action[name]["object"] for name in ("browse", "enqueue", "lease.advance")] == ["orders"] * 3
    assert "may not browse" in by_action["browse"]["error"]


@pytest.mark.parametrize(("door", "headers"), [("api", {}), ("page", {"sec_fetch_site": "same-origin"})])
def test_each_action_over_http_without_its_right_is_recorded(site: Site, http: Http, door: str, headers: dict[str, str]) -> None:
    furnish(site, "orders")
    site.user("alice", *Right, queue="mine")
    answers = {
        action: http.call(
            action, json.loads(json.dumps(fields).replace("Q", "orders")), authorization=basic("alice", "secret"), **headers
        )
        for action, fields in VALID.items()
    }
    denied = [action for action, answer in answers.items() if answer.status == 403]
    assert len(denied) > 20
    assert [(entry["action"], entry["door"], entry["user"]) for entry in entries(site)] == [
        (action, door, "alice") for action in denied
    ]


def test_details_have_neither_a_password_nor_the_content_of_a_message(site: Site) -> None:
    site.user("root", *Right).call("queue.declare", queue="orders")
    alice = site.user("alice", *Right, queue="mine")
    for name, fields in (
        ("user.add", {"user": "eve", "password": "secret word"}),
        ("message.send", {"queue": "orders", "body": "secret word", "properties": {"secret word": 1}, "priority": 7}),
    ):
        with pytest.raises(errors.NotAllowed):
            alice.call(name, **fields)
    assert "secret word" not in json.dumps(entries(site))
    assert entries(site)[-1]["details"] == {"priority": 7}


def test_a_right_that_ends_during_a_stream_is_recorded(site: Site) -> None:
    site.user("root", *Right).call("queue.declare", queue="orders")
    alice = site.user("alice", Right.SEND, queue="orders")
    writer, reader = alice.put_stream(op="enqueue", queue="orders")
    writer.write_batch(batch_of([b"x"]))
    assert reader.read() is not None
    site.edit(lambda users: users.revoke("alice", "orders", [Right.SEND]))
    writer.write_batch(batch_of([b"y"]))
    with pytest.raises(flight.FlightUnauthorizedError, match="may not send to"):
        writer.close()
    assert [(entry["action"], entry["user"], entry["object"]) for entry in entries(site)] == [("enqueue", "alice", "orders")]


def test_spark_has_its_door(site: Site) -> None:
    site.user("root", *Right).call("queue.declare", queue="orders")
    site.user("alice", Right.BROWSE, queue="mine")
    with Client(site.plane.url, Credentials("alice", "secret"), program="spark") as spark:
        for request in (
            lambda: list(spark.get(op="browse", queue="orders", columns=["body"])),
            lambda: spark.call("lease.advance", queue="orders", lease="l", run="r", epoch=None, finished=0, fresh=True),
        ):
            with pytest.raises(errors.NotAllowed):
                request()
    assert [(entry["door"], entry["action"]) for entry in entries(site)] == [("spark", "browse"), ("spark", "lease.advance")]


def test_each_refused_login_is_recorded_with_the_claimed_name(site: Site, http: Http) -> None:
    site.user("alice", *Right)
    for authorization in (basic("alice", "wrong"), basic("nobody", "x"), "Basic %%%", "Digest x", None):
        with pytest.raises(errors.Unauthenticated):
            site.peer(authorization).call("queue.list")
    assert http.get("/api/v1/queue.list", authorization=basic("alice", "wrong")).status == 401
    assert http.post("/api/v1/session", {"user": "alice", "password": "wrong"}).status == 401
    recorded = entries(site)
    assert {(entry["action"], entry["object"]) for entry in recorded} == {("login", "")}
    assert [(entry["user"], entry["door"]) for entry in recorded] == [
        *((name, "flight") for name in ("alice", "nobody", "anonymous", "anonymous", "anonymous")),
        *(("alice", "api"), ("alice", "api")),
    ]
    assert "wrong" not in json.dumps([entry["user"] for entry in recorded])


def test_a_refused_token_is_not_a_login(site: Site) -> None:
    """Programs let tokens expire, and log in again."""
    site.user("alice", *Right)
    with pytest.raises(errors.Unauthenticated):
        site.peer("Bearer x").call("queue.list")
    assert entries(site) == []
