"""The API by its own description: requests made of OpenAPI's schemas, right and wrong, never find a mistake of the broker's."""

from __future__ import annotations

import os
import random
from typing import Any
from urllib.parse import quote

from penstock import Broker

from .helpers import Answer, Http

ROUNDS = int(os.environ.get("PENSTOCK_FUZZ_ROUNDS", "1"))
SEED = int(os.environ.get("PENSTOCK_FUZZ_SEED", "14"))
TEXTS = ["", "q", "\x00", "ü" * 300, "<script>", "../../etc/passwd", "' OR 1=1 --", "a" * 70_000, "\u202e", "*", ":", "%s%n"]
NUMBERS = [0, 1, -1, 2**31, 2**63 - 1, -(2**63), 2**64, 10**30]


def value(schema: dict[str, Any], random: random.Random) -> Any:
    """Something that the schema allows, at its edges."""
    if "anyOf" in schema:
        return value(random.choice(schema["anyOf"]), random)
    kind = schema["type"]
    if isinstance(kind, list):
        kind = random.choice(kind)
    if kind == "string":
        return random.choice(TEXTS)
    if kind == "integer":
        return random.choice(NUMBERS)
    if kind == "array":
        return [value(schema["items"], random) for _ in range(random.randrange(4))]
    if kind == "object":
        return {random.choice(TEXTS[:3]): random.choice([1, "x", None, [1], {}]) for _ in range(random.randrange(3))}
    return {"number": random.choice([0.5, -1e308, 3.0]), "boolean": random.random() < 0.5, "null": None}[kind]


def looks_right(answer: Answer) -> None:
    assert answer.headers["content-type"] == "application/json", answer
    assert answer.status in (200, 400, 401, 403, 404, 405, 409, 413, 502, 507), answer
    if answer.status != 200:
        assert answer.json["error"].keys() == {"code", "message"}
        assert "Traceback" not in answer.json["error"]["message"]
    else:
        assert isinstance(answer.json, dict)


def test_no_request_of_the_description_or_beside_it_finds_a_mistake_of_ours(http: Http, broker: Broker) -> None:
    rolled = random.Random(SEED)
    http.call("queue.declare", {"queue": "q"})
    paths = http.get("/api/v1/openapi.json").json["paths"]
    for _ in range(3 * ROUNDS):
        for path, methods in paths.items():
            if path.endswith("queue.delete") or "tags" not in methods.get("post", {}):  # the other paths are not actions
                continue
            schema = methods["post"]["requestBody"]["content"]["application/json"]["schema"]
            fields = {name: value(field, rolled) for name, field in schema["properties"].items() if rolled.random() < 0.8}
            if "queue" in fields and rolled.random() < 0.7:
                fields["queue"] = "q"
            looks_right(http.post(path, fields))
            if fields:
                wrong = rolled.choice(list(fields))
                looks_right(http.post(path, {**fields, wrong: rolled.choice([[], {}, "x", 1.5, None, [[1]], True])}))
            query = "&".join(f"{quote(name)}={quote(str(value)[:2000])}" for name, value in fields.items())
            looks_right(http.get(f"{path}?{query}"))
    octets = rolled.randbytes(200)
    for body in (b"", b"null", b"[]", b'{"a":' * 5000, b'{"queue": "\\ud800"}', b'{"queue": 1e999}', octets):
        looks_right(http.ask("POST", "/api/v1/queue.stat", body, content_type="application/json"))
    assert http.get("/health/ready").json == {"ready": True, "reasons": [], "warnings": []}
    assert http.get("/api/v1/queue.stat?queue=q").status == 200
    assert "Traceback" not in broker.log(), broker.log()[-3000:]
