"""E1: `penstock exchange …` against a real broker."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from penstock.broker_core.cli.main import main
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from .conftest import enqueue


@pytest.fixture
def penstock(
    broker: Broker, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> Callable[..., tuple[int, str, str]]:
    """Run `penstock exchange …` in this process: exit code, stdout, stderr."""
    monkeypatch.setenv("COLUMNS", "200")

    def run(*arguments: str) -> tuple[int, str, str]:
        capsys.readouterr()
        code = main(["exchange", *arguments, "--url", broker.url])
        return code, *capsys.readouterr()

    return run


def test_E1_an_exchange_from_declare_to_delete(penstock: Callable[..., tuple[int, str, str]], client: Client) -> None:
    def output_of(*arguments: str) -> str:
        code, out, error = penstock(*arguments)
        assert (code, error) == (0, "")
        return out

    enqueue(client, "orders", b"one")
    assert "no exchanges yet" in output_of("list")
    assert output_of("declare", "events", "--type", "headers", "--option", "unroutable=drop") == "exchange events is declared\n"
    assert "exists already" in output_of("declare", "events", "--type", "headers", "--option", "unroutable=drop")
    bind = ("bind", "events", "orders", "--argument", "size=3", "--argument", "x-match=any", "--selector", "urgent  = TRUE")
    assert output_of(*bind) == "exchange events is bound to queue orders\n"
    assert output_of(*bind) == "exchange events was already bound in the same way to queue orders\n"
    assert json.loads(output_of("bind", "events", "orders", "--json")) == {"created": True}
    lines = [line.split() for line in output_of("list").splitlines()]
    assert lines[1] == [
        "events",
        "headers",
        "unroutable=drop",
        "orders",
        "size=3",
        "x-match=any,",
        "selector",
        *("urgent", "=", "TRUE"),
    ]
    assert lines[2] == ["orders"]
    (listed,) = json.loads(output_of("list", "--json"))
    assert listed["bindings"][0]["arguments"] == {"size": 3, "x-match": "any"}
    assert output_of("unbind", "events", "orders") == "2 bindings of exchange events to queue orders are removed\n"
    assert json.loads(output_of("delete", "events", "--json")) == {"exchange": "events"}


def test_E1_a_binding_names_the_field_that_its_selector_may_mean(
    penstock: Callable[..., tuple[int, str, str]], client: Client
) -> None:
    enqueue(client, "orders", b"one")
    penstock("declare", "events")
    code, _, error = penstock("bind", "events", "orders", "--selector", "priority > 4")
    assert code == 0
    assert error.startswith("note: in a selector 'priority' is an application property; for the message's priority write JMSPri")
    assert penstock("bind", "events", "orders", "--key", "a", "--selector", " ")[2] == ""
    (listed,) = json.loads(penstock("list", "--json")[1])
    assert [binding.get("selector") for binding in listed["bindings"]] == ["priority > 4", None]


def test_E1_what_a_binding_wants_is_JSON_for_every_reader(penstock: Callable[..., tuple[int, str, str]], client: Client) -> None:
    """NaN is a text, as the headers say it, and no number: no other JSON parser would take the list."""
    enqueue(client, "orders", b"one")
    penstock("declare", "events", "--type", "headers")
    assert penstock("bind", "events", "orders", "--argument", "size=NaN")[0] == 0
    assert "'Infinity' matches such a header" in penstock("bind", "events", "orders", "--argument", "size=1e999")[2]
    (listed,) = json.loads(penstock("list", "--json")[1])
    assert listed["bindings"] == [{"queue": "orders", "arguments": {"size": "NaN"}}]


def test_E1_a_wrong_declaration_is_refused_with_the_field(penstock: Callable[..., tuple[int, str, str]], client: Client) -> None:
    enqueue(client, "orders", b"one")
    client.call("exchange.declare", exchange="events", type="topic")
    for arguments, text, code in (
        (("declare", "events"), "type 'topic', not 'direct'", 1),
        (("declare", "other", "--option", "colour=red"), "option 'colour'", 1),
        (("declare", "other", "--option", "colour"), "--option cannot be 'colour'", 2),
        (("bind", "events", "orders", "--argument", "a=1"), "arguments: a topic exchange", 1),
        (("bind", "events", "orders", "--selector", "a ="), "the selector is wrong at character 4", 1),
        (("bind", "events", "orders", "--argument", "a"), "--argument cannot be 'a'", 2),
        (("bind", "events", "orders", "--argument", "a=1", "--argument", "a=2"), "--argument names 'a' twice", 2),
        (("declare", "other", "--option", "alternate=a", "--option", "alternate=b"), "--option names 'alternate' twice", 2),
        (("unbind", "events", "orders"), "has no binding to 'orders'", 1),
        (("delete", "nobody"), "no exchange 'nobody'", 1),
    ):
        exit_code, _, error = penstock(*arguments)
        assert (exit_code, text in error) == (code, True), error
    (listed,) = client.call("exchange.list")["exchanges"]
    assert (listed["exchange"], listed["type"], listed["options"], listed["bindings"]) == ("events", "topic", {}, [])
