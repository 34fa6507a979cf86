"""U3: /api/v1/openapi.json describes every path, its fields and its answers. Real answers are validated."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import jsonschema
import pytest

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.actions.actions import ACTIONS
from penstock.broker_core.actions.fields import specs_of
from penstock.broker_core.client.amqp import connect
from penstock.broker_core.client.flight import Client
from penstock.broker_core.http_plane import openapi, statuses
from penstock.broker_core.security import Right

from ..flight.helpers import batch_of, numbered, send
from ..flight.peers import Site, furnish
from ..flight.valid_requests import VALID, VALID_TICKETS, of_queue
from ..tools.pages import rows, section
from ..waiting import until
from .helpers import Answer, Http, basic, cookie_of

PATIENCE_S = 30.0
OTHERS = {"counts", "history", "session", "openapi.json"}


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("broker") / "data", fsync="never", archive_after_s=1) as running:
        yield running


@pytest.fixture(scope="module")
def described(broker: Broker) -> Described:
    return Described(Http(broker.http_url).get("/api/v1/openapi.json").json)


def closed(schema: Any) -> Any:
    """Make a schema strict: an object has the described properties alone."""
    if isinstance(schema, list):
        return [closed(item) for item in schema]
    if not isinstance(schema, dict):
        return schema
    copy = {name: closed(part) for name, part in schema.items()}
    return {**copy, "additionalProperties": False} if "properties" in schema else copy


class Described:
    """The description, against which answers are held."""

    def __init__(self, document: dict[str, Any]) -> None:
        self.document = document
        self.components = closed(document["components"])
        self.answered: set[str] = set()  # paths with their methods that were answered successfully

    def check(self, method: str, path: str, answer: Answer) -> None:
        name = path.partition("?")[0]
        operation = self.document["paths"][name][method.lower()]
        assert str(answer.status) in operation["responses"], (method, path, answer)
        response = operation["responses"][str(answer.status)]
        if "$ref" in response:
            response = self.document["components"]["responses"][response["$ref"].rpartition("/")[2]]
        if "content" not in response:
            assert answer.body == b"", (method, path)
        else:
            schema = response["content"][answer.headers["content-type"].partition(";")[0]]["schema"]
            body = answer.json if "json" in answer.headers["content-type"] else answer.body.decode()
            jsonschema.Draft202012Validator({**closed(schema), "components": self.components}).validate(body)
        if answer.status < 300:
            self.answered.add(f"{method} {name}")

    def get(self, http: Http, path: str, **headers: str) -> Answer:
        answer = http.get(path, **headers)
        self.check("GET", path, answer)
        return answer

    def call(self, http: Http, action: str, fields: dict[str, Any] | None = None, **headers: str) -> Answer:
        answer = http.call(action, fields, **headers)
        self.check("POST", f"{openapi.PREFIX}{action}", answer)
        return answer


def test_every_path_and_field_is_described(described: Described) -> None:
    document = described.document
    assert document["openapi"] == "3.1.0"
    actions = {path.removeprefix(openapi.PREFIX) for path in document["paths"] if path.startswith(openapi.PREFIX)}
    assert actions == ACTIONS.keys() | OTHERS
    assert document["paths"].keys() > {"/health/live", "/health/ready", "/metrics"}
    for name, action in ACTIONS.items():
        methods = document["paths"][openapi.PREFIX + name]
        assert set(methods) == ({"get", "post"} if action.reads else {"post"})
        schema = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
        assert schema["properties"].keys() == specs_of(action.operation.request).keys()
        assert all(field["description"] for field in schema["properties"].values())
    operations = [operation["operationId"] for path in document["paths"].values() for operation in path.values()]
    assert len(set(operations)) == len(operations)
    jsonschema.Draft202012Validator.check_schema({"$defs": document["components"]["schemas"]})


def test_every_code_of_an_error_is_described_with_its_status(described: Described, repository: Path) -> None:
    responses = described.document["components"]["responses"]
    pairs = set()
    for name, response in responses.items():
        codes = response["content"]["application/json"]["schema"]["properties"]["error"]["properties"]["code"]["enum"]
        pairs |= {(code, name.removeprefix("Error")) for code in codes}
    page = section((repository / "docs" / "http.md").read_text(), "Errors")
    own = {(code.strip("`"), status) for code, status, *_ in rows(page)[1:]}
    ours = {(code, str(statuses.status_of(kind))) for code, kind in errors.BY_CODE.items() if code != "ERROR"}
    assert pairs == own | ours | {("ERROR", "500")}


def test_what_is_answered_is_as_it_is_described(broker: Broker, described: Described) -> None:
    """Each path with each method once at least, on queues where there is something to tell."""
    http = Http(broker.http_url)
    with Client(broker.url) as client, connect(broker.amqp_url) as connection:
        client.call("queue.declare", queue="dead")
        client.call("queue.declare", queue="orders", options={"deadLetterQueue": "dead", "maxAttempts": 3})
        send(client, "orders", numbered(9))
        receiver = connection.receiver("orders", credit=6)
        got = receiver.receive(6, timeout_s=PATIENCE_S)
        receiver.reject(got[:2], "no")
        receiver.accept(got[2:4])
        for number, action in enumerate(VALID):
            queue = f"queue {number}"
            fields = of_queue(VALID[action], queue, prepare(client, queue, action))
            described.call(http, action, fields)
            if ACTIONS[action].reads and "queue" in fields:
                also = {"archive.files": {"lineages": ["b", "3"]}, "message.trace": {"id": "4711"}}
                query = {"queue": queue, **also.get(action, {})}
                described.get(http, f"{openapi.PREFIX}{action}?{urlencode(query, doseq=True)}")
            elif action == "stage.published":
                described.get(http, f"{openapi.PREFIX}{action}?{urlencode(fields)}")
            elif ACTIONS[action].reads:
                described.get(http, f"{openapi.PREFIX}{action}")
        until(lambda: http.call("archive.status").json["recorded"], "something is recorded")
        for action, fields in (
            ("queue.stat", {"queue": "orders"}),
            ("archive.status", {}),
            ("connection.list", {}),
            ("exchange.list", {}),
            ("stage.list", {}),
            ("lease.list", {}),
            ("queue.messages", {"queue": "dead"}),
            ("queue.messages", {"queue": "orders", "states": ["archived", "acquired"]}),
            ("message.trace", {"selector": "JMSPriority > 0"}),
            ("message.trace", {"queue": "orders", "sequence": 0}),
            ("archive.plan", {"queue": "orders", "states": ["archived"]}),
            ("broker.journal", {}),
        ):
            assert described.call(http, action, fields).status == 200
        plan = http.call("archive.plan", {"queue": "orders", "states": ["archived"]}).json
        files = described.call(http, "archive.files", {"queue": "orders", "lineages": plan["table"]["lineages"]})
        assert files.json["files"]
    for path in ("/health/live", "/health/ready", "/metrics", *(f"{openapi.PREFIX}{name}" for name in sorted(OTHERS))):
        described.get(http, path)
    described.get(http, f"{openapi.PREFIX}history?queue=orders&queue=dead")
    described.get(http, "/metrics", accept="application/openmetrics-text")
    wanted = {f"{method.upper()} {path}" for path, methods in described.document["paths"].items() for method in methods}
    of_users = {f"POST /api/v1/user.{name}" for name in ("add", "remove", "setRights")}  # this broker has no users
    assert wanted - described.answered == {"POST /api/v1/session", "DELETE /api/v1/session", *of_users}


def prepare(client: Client, queue: str, action: str) -> int:
    """Make a queue with messages, leases with a batch and without, an exchange that is bound, and a stage; return the epoch with
    which the leases began."""
    client.call("queue.declare", queue=queue)
    client.call("queue.declare", queue=f"other {queue}")
    client.call("exchange.declare", exchange=f"bound {queue}")
    client.call("exchange.bind", exchange=f"bound {queue}", queue=queue, key="k", selector="a = 1")
    send(client, queue, numbered(10))
    client.put({"op": "stage", "queue": queue, "stage": f"s {queue}"}, batch_of(numbered(1)).schema, [batch_of(numbered(1))])
    lease = {"queue": queue, "run": "r", "epoch": None, "finished": 0, "fresh": True}
    epoch = int(client.call("lease.advance", lease=f"held {queue}", messages=3, **lease)["epoch"])
    client.call("lease.advance", lease=f"idle {queue}", messages=1, **lease)
    client.call("lease.release", lease=f"idle {queue}", how="return")
    if action == "lease.setAside":
        list(client.get(**of_queue(VALID_TICKETS["batch"], queue, epoch)))
    return epoch


def test_what_is_refused_is_as_it_is_described(site: Site, guarded: Http, described: Described) -> None:
    """Without a login, without a right, with a wrong field, a name that is not there, and so on; and logins."""
    furnish(site, "orders")
    site.user("alice", Right.BROWSE, queue="orders")
    root, alice = basic("root"), basic("alice")
    for action in ACTIONS:
        assert described.call(guarded, action).status in (401, 400)
        assert described.call(guarded, action, {"wrong": 1}, authorization=root).status == 400
        assert described.call(guarded, action, {}, authorization=root, host="evil.example").status == 421
    for action, fields, headers, status in (
        ("queue.purge", {"queue": "orders"}, {"authorization": alice}, 403),
        ("queue.stat", {"queue": "nowhere"}, {"authorization": root}, 404),
        ("queue.delete", {"queue": "orders"}, {"authorization": root}, 409),
        ("queue.purge", {"queue": "orders"}, {"authorization": root, "content_type": "text/plain"}, 415),
        ("queue.purge", {"queue": "orders"}, {"authorization": root, "origin": "http://evil.example"}, 403),
    ):
        assert described.call(guarded, action, fields, **headers).status == status
    path = "/api/v1/session"
    for fields, status in (({"user": "root", "password": "wrong"}, 401), ({"user": "root"}, 400)):
        answer = guarded.post(path, fields)
        described.check("POST", path, answer)
        assert answer.status == status
    begun = guarded.post(path, {"user": "root", "password": "secret"})
    described.check("POST", path, begun)
    described.get(guarded, path, cookie=cookie_of(begun))
    for token, status in (("wrong", 403), (begun.json["csrf"], 204)):
        ended = guarded.ask("DELETE", path, cookie=cookie_of(begun), x_csrf_token=token)
        described.check("DELETE", path, ended)
        assert ended.status == status
    for path in ("/metrics", "/api/v1/counts", "/api/v1/history"):
        assert described.get(guarded, path).status == 401
