"""Definitions of RabbitMQ and Artemis, users in definitions, and files that an import refuses.

definitions/rabbitmq.json is the output of `rabbitmqctl export_definitions` of RabbitMQ 3.10.8. definitions/artemis.xml is the
file that `artemis create` writes, shortened, with addresses of a shop.
"""

from __future__ import annotations

import json
import re
import stat
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker_core.cli.definitions import artemis, rabbitmq
from penstock.broker_core.cli.definitions.command import MAX_FILE_BYTES, read
from penstock.broker_core.cli.definitions.regular_expressions import patterns_of
from penstock.broker_core.cli.definitions.steps import ImportStep
from penstock.broker_core.cli.main import UsageError
from penstock.broker_core.client.flight import Client
from penstock.broker_core.errors import AlreadyExists
from penstock.broker_core.patterns import matches
from penstock.broker_core.security import users_file
from penstock.broker_core.security.rights import Right
from penstock.broker_core.security.users import User, credentials_of
from penstock.broker_core.server.child import Broker

from .conftest import Run

_POLICY = '{"name": "p", "pattern": ""}'
EXPORT = Path(__file__).with_name("definitions") / "rabbitmq.json"
ARTEMIS = EXPORT.with_name("artemis.xml")


def test_a_real_export_of_rabbitmq_is_imported_and_each_object_is_reported(
    penstock: Run, broker: Broker, client: Client, tmp_path: Path
) -> None:
    users = tmp_path / "users.json"
    users_file.edit(users, lambda users: users.add("shop", User(None, ("shop",))))
    flags = str(EXPORT), "--virtual-host", "/", "--users-file", str(users)
    done = penstock("definitions", "import", *flags, url=broker.url)
    assert done.returncode == 1  # a queue has a name that Penstock refuses
    *lines, summary = done.stdout.splitlines()
    assert summary == "31 declared, 0 existed already, 5 refused, 10 left out"
    assert len(lines) == 31 + 5 + 10
    queues = {queue["queue"]: (queue["type"], queue["options"]) for queue in client.call("queue.list")["queues"]}
    ring = {"maxMessages": 5000, "overflow": "ring", "consumers": "single"}
    dead = {"deadLetterQueue": "orders.dead", "expired": "deadLetter"}
    day = {"messageTtl": 86_400_000, **dead}
    assert {name: (kind, {**options, "durability": None}) for name, (kind, options) in queues.items()} == {
        name: (kind, {**options, "durability": None})
        for name, (kind, options) in {
            "orders.eu": ("fifo", {"maxAttempts": 5, **day}),
            "orders.us": ("fifo", {**ring, **day}),
            "orders.dead": ("fifo", {"messageTtl": 86_400_000}),
            "urgent": ("priority", {"maxMessages": 100_000, "overflow": "reject", **dead}),
            "events.all": ("fifo", {"maxMessages": 100_000, "overflow": "ring", "messageTtl": 3_600_000}),
            "events.rest": ("fifo", {"maxMessages": 100_000, "overflow": "reject"}),
            "session": ("fifo", {"maxMessages": 100_000, "overflow": "reject", "lifetime": "unused"}),
            "retry.a": ("fifo", {"maxMessages": 100_000, "overflow": "reject", "messageTtl": 1000}),
            "retry.b": ("fifo", {"maxMessages": 100_000, "overflow": "reject", "messageTtl": 2000}),
        }.items()
    }
    exchanges = {exchange["exchange"]: exchange for exchange in client.call("exchange.list")["exchanges"]}
    assert exchanges["events"]["options"] == {"alternate": "unrouted"}
    assert exchanges["by-region"]["bindings"][0]["arguments"] == {"x-match": "all", "region": "eu", "size": 3}
    assert [binding["key"] for binding in exchanges["amq.topic"]["bindings"]] == ["mqtt.#"]
    for line in (
        "left out  queue audit: a stream; ",
        "left out  binding fan to exchange inner: Penstock has no bindings between exchanges",
        "left out  user tester: a hash of RabbitMQ cannot be used; `penstock user add tester` adds",
        "left out  topic permission of shop on events: ",
        "left out  policy dead-letters: applied to 3 nodes of this file; ",
        "refused   queue tasks/mail (fifo, ",
        "refused   permission of reports on orders.us: receive, browse: there is no user 'reports'",
        "created   user gateway: without a password, for the certificate gateway",
        "created   permission of shop on orders.*: receive, browse",
        "left out  permission of gateway: configure on ^gw-[0-9]+$: no pattern with '*' is equal; use `penstock permit gateway ",
    ):
        assert line in done.stdout
    assert all("retry.b → retry.a → retry.b is a cycle" in line for line in lines if "queue retry." in line)
    held = users_file.read(users)
    assert held is not None
    assert held.permissions["shop"]["shop.*"] == {Right.SEND}
    again = penstock("definitions", "import", *flags, "--json", url=broker.url)
    report = json.loads(again.stdout)
    assert [report[name] for name in ("declared", "there", "refused", "left")] == [0, 31, 5, 10]
    assert len(report["lines"]) == 46
    assert users_file.read(users) == held


def planned(**sections: list[dict[str, Any]]) -> list[ImportStep]:
    return rabbitmq.steps({"rabbit_version": "3.13", **sections}, None)


def queue(name: str = "q", **arguments: Any) -> dict[str, Any]:
    return {"name": name, "arguments": {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}}


def options_of(step: ImportStep) -> Any:
    return step.fields["options"]


def test_the_policy_of_the_highest_priority_is_merged_with_the_arguments() -> None:
    policies = [
        {"name": "low", "pattern": "q", "priority": 1, "definition": {"delivery-limit": 7, "expires": 5}},
        {
            "name": "high",
            "pattern": "^q",
            "priority": 2,
            "definition": {"message-ttl": 10, "max-length": 8, "overflow": "drop-head"},
        },
        {"name": "other", "pattern": "q", "priority": 3, "apply-to": "exchanges", "definition": {"max-length": 1}},
        {"name": "broken", "pattern": "(", "priority": 9, "definition": {"max-length": 1}},
    ]
    step, *applied = planned(queues=[queue(message_ttl=20, max_length=5, overflow="reject-publish")], policies=policies)
    assert options_of(step) == {"messageTtl": 10, "maxMessages": 5, "overflow": "reject"}
    assert [step.notes[0].partition(";")[0] for step in applied] == [
        "applied to 0 nodes of this file",
        "applied to 1 node of this file",
        "applied to 0 nodes of this file",
        "its pattern cannot be used: missing ), unterminated subpattern at position 0",
    ]


@pytest.mark.parametrize(
    ("arguments", "note"),
    [
        ({"message_ttl": 0}, "message-ttl: 0 has no counterpart"),
        ({"max_length": "5"}, "max-length: '5' has no counterpart"),
        ({"max_length_bytes": True}, "max-length-bytes: True has no counterpart"),
        ({"max_priority": -1}, "max-priority: -1 has no counterpart"),
        ({"colour": "blue"}, "colour: no counterpart"),
        ({"dead_letter_exchange": "none"}, "dead letters stay in this queue, archived: the file has no exchange 'none'"),
        ({"dead_letter_exchange": ""}, "dead letters stay in this queue, archived: they would return to the same queue"),
        ({"dead_letter_exchange": 5}, "dead letters stay in this queue, archived: the file has no exchange '5'"),
    ],
    ids=lambda value: str(value)[:30],
)
def test_an_argument_without_a_counterpart_is_reported_and_the_queue_is_created(arguments: dict[str, Any], note: str) -> None:
    (step,) = planned(queues=[queue(**arguments)])
    assert step.action == "queue.declare"
    assert options_of(step) == {}
    assert list(step.notes) == [note]


@pytest.mark.parametrize(
    ("kind", "keys", "key", "target"),
    [
        ("direct", {"a": "x", "b": "y"}, "x", "a"),
        ("direct", {"a": "x", "b": "x"}, "x", None),
        ("direct", {"a": "x"}, "z", None),
        ("direct", {"a": "x"}, None, "a"),
        ("direct", {"a": "x", "b": "y"}, None, None),
        ("fanout", {"a": "x"}, "z", "a"),
        ("topic", {"a": "eu.*", "b": "us.#"}, "eu.de", "a"),
        ("topic", {"a": "eu.*", "b": "us.#"}, "us", "b"),
        ("topic", {"a": "eu.*"}, "eu.de.berlin", None),
        ("topic", {"a": "#.eu", "b": "us"}, "eu", "a"),
    ],
)
def test_a_dead_letter_exchange_becomes_the_only_queue_that_it_leads_to(
    kind: str, keys: dict[str, str], key: str | None, target: str | None
) -> None:
    bindings = [
        {"source": "dlx", "destination": name, "destination_type": "queue", "routing_key": bound} for name, bound in keys.items()
    ]
    arguments = {"dead_letter_exchange": "dlx"} | ({} if key is None else {"dead_letter_routing_key": key})
    exchanges = [{"name": "dlx", "type": kind}]
    step = planned(queues=[queue(**arguments)], exchanges=exchanges, bindings=bindings)[0]
    assert options_of(step).get("deadLetterQueue") == target
    assert bool(step.notes) == (target is None)


def test_long_chains_of_dead_letters_and_alternates_take_linear_time() -> None:
    chain = 30_000
    queues = [queue(f"q{n}", dead_letter_exchange="", dead_letter_routing_key=f"q{n + 1}") for n in range(chain)]
    exchanges = [{"name": f"e{n}", "type": "fanout", "arguments": {"alternate-exchange": f"e{n + 1}"}} for n in range(chain)]
    steps = planned(queues=queues, exchanges=exchanges)
    assert sum("deadLetterQueue" in options_of(step) for step in steps) == chain
    names = [step.fields["exchange"] for step in steps[chain:]]
    assert names[0] == f"e{chain - 1}"  # its alternate does not exist, and the others follow in order
    assert names[-1] == "e0"
    queues[-1] = queue(f"q{chain - 1}", dead_letter_exchange="", dead_letter_routing_key="q0")
    assert sum("is a cycle" in "".join(step.notes) for step in planned(queues=queues)) == chain


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('{"vhosts": [], "queues": {}}', "queues must be a list"),
        ('{"vhosts": [], "queues": ["q"]}', "queues[0] must be an object"),
        ('{"vhosts": [], "queues": [{"name": 5}]}', "queues[0].name must be a text"),
        ('{"vhosts": [], "queues": [{"name": "q", "arguments": []}]}', "queues[0].arguments must be an object"),
        ('{"vhosts": [], "queues": [{"name": "q", "vhost": 1}]}', "queues[0].vhost must be a text"),
        ('{"vhosts": [], "bindings": [{"source": "x"}]}', "bindings[0].destination must be a text"),
        ('{"vhosts": [], "policies": [{"name": "p", "pattern": "", "priority": "1"}]}', "priority must be a whole number"),
        ('{"vhosts": [], "permissions": [{"user": "u", "configure": null}]}', "permissions[0].configure must be a text"),
        ('{"vhosts": [], "queues": [{"name": "q", "name": "r"}]}', "an object has a duplicate name"),
        (f'{{"vhosts": [], "policies": [{", ".join([_POLICY] * 501)}]}}', "policies has 501 objects"),
        (f'{{"vhosts": {"[" * 100_000}', "is not JSON"),
        ('{"version": 1, "queues": [], "exchanges": [], "users": {"u": {}}}', "user 'u' must be an object with exactly"),
        ('{"version": 1, "queues": [], "exchanges": [], "users": {"a:b": {}}}', "cannot carry a colon"),
        ('{"version": 1, "queues": [], "exchanges": [], "permissions": {"u": {"q": ["own"]}}}', "rights are a list of"),
        ("5", "no definitions"),
    ],
    ids=lambda text: text[:50],
)
def test_a_malformed_file_is_refused_before_the_first_request(tmp_path: Path, text: str, complaint: str) -> None:
    (tmp_path / "file").write_text(text)
    with pytest.raises(UsageError, match=re.escape(complaint)):
        read(tmp_path / "file", None)


def test_a_file_that_is_too_large_is_refused_without_reading_all_of_it(tmp_path: Path) -> None:
    with (tmp_path / "file").open("wb") as file:
        file.truncate(MAX_FILE_BYTES + 1)
    with pytest.raises(UsageError, match=r"has more than 256 MiB; nothing was imported\. Export each virtual host"):
        read(tmp_path / "file", None)


def test_a_file_of_50_megabytes_is_read(tmp_path: Path) -> None:
    """Its limit on objects is that of the chosen virtual host."""
    hosts, count = ("a", "b", "c"), 60_000
    bindings = [
        {"source": "amq.topic", "vhost": host, "destination": "q", "destination_type": "queue", "routing_key": f"{n}.{'x' * 170}"}
        for host in hosts
        for n in range(count)
    ]
    document = {"vhosts": [{"name": host} for host in hosts], "queues": [], "exchanges": [], "bindings": bindings}
    (tmp_path / "file").write_text(json.dumps(document))
    assert (tmp_path / "file").stat().st_size > 50_000_000
    steps = read(tmp_path / "file", "b")
    assert sum(step.action == "exchange.bind" for step in steps) == count


def test_a_virtual_host_is_chosen(tmp_path: Path) -> None:
    for host, complaint in (
        (None, "choose one of '/', 'billing' with"),
        ("shop", "no objects of virtual host 'shop'; it has '/', "),
    ):
        with pytest.raises(UsageError, match=complaint):
            read(EXPORT, host)
    steps = read(EXPORT, "billing")
    assert [step.object for step in steps if step.action] == [
        "queue invoices (fifo)",
        "exchange invoices (direct)",
        "binding invoices to invoices with key x",
    ]


def test_a_broker_xml_of_artemis_is_imported_and_each_object_is_reported(penstock: Run, broker: Broker, client: Client) -> None:
    done = penstock("definitions", "import", str(ARTEMIS), url=broker.url)
    assert (done.returncode, done.stdout.splitlines()[-1]) == (0, "16 declared, 0 existed already, 0 refused, 7 left out")
    queues = {queue["queue"]: (queue["type"], queue["options"]) for queue in client.call("queue.list")["queues"]}
    dead = {"deadLetterQueue": "orders.dead", "expired": "deadLetter", "messageTtl": 86_400_000}
    orders = {**dead, "retryDelay": 5000, "maxRetryDelay": 60_000}
    default = {"durability": "all", "deadLetterQueue": "DLQ"}
    assert queues["orders.eu"][1] == {
        "durability": "all",
        "maxAttempts": 5,
        "retryBackoff": 2,
        "maxBytes": 100 << 20,
        "consumers": "single",
        **orders,
    }
    assert queues["orders.us"][1] == {
        "durability": "all",
        "maxAttempts": 0,
        "consumers": "exclusive",
        "overflow": "ring",
        "maxMessages": 5000,
        "maxBytes": 100 << 20,
        **orders,
    }
    assert queues["prices"] == ("lastvalue", {"key": "properties.stock", **default})
    assert queues["telemetry.all"][1] == {"maxMessages": 1000, "overflow": "ring", **default}
    assert queues["DLQ"][1] == {"durability": "all"}
    exchanges = {exchange["exchange"]: exchange for exchange in client.call("exchange.list")["exchanges"]}
    assert {name: [binding["queue"] for binding in node["bindings"]] for name, node in exchanges.items()} == {
        "telemetry": ["telemetry.all", "telemetry.hot"],
        "inbox": ["inbox.queue"],
    }
    assert exchanges["telemetry"]["bindings"][1]["selector"] == "temperature > 80"
    for line in (
        "redelivery-delay-multiplier: '1.5' has no counterpart",
        "a ring drops the oldest message, and Artemis the newest",
        "left out  address work: Artemis gives each message to one of its queues",
        "left out  address setting orders.#: applied to 3 nodes of this file; ",
        "left out  divert copy-of-orders: ",
        "left out  permissions on #: ",
        "expiry-address ExpiryQueue: expired messages are archived",
    ):
        assert line in done.stdout


def broker_xml(content: str) -> bytes:
    return f"<configuration><core>{content}</core></configuration>".encode()


@pytest.mark.parametrize(
    ("data", "complaint"),
    [
        (b'<!DOCTYPE c [<!ENTITY a "b">]><configuration><core>&a;</core></configuration>', "DOCTYPE"),
        (b'<!DOCTYPE c SYSTEM "file:///etc/passwd"><configuration><core/></configuration>', "DOCTYPE"),
        (broker_xml("&a;"), "is not XML"),
        (b"<configuration><core>", "is not XML"),
        (b"<configuration/>", "no element <core>"),
        (b"<a>" * 33, "nested more than 32 deep"),
        (broker_xml("<addresses><address/></addresses>"), "<address> has no attribute name"),
        (
            broker_xml("<address-settings>" + "<address-setting match='a'/>" * 501 + "</address-settings>"),
            "at most 20,000 queues and 500",
        ),
    ],
    ids=lambda value: value[:40] if isinstance(value, str) else None,
)
def test_xml_with_entities_or_without_its_elements_is_refused(tmp_path: Path, data: bytes, complaint: str) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(UsageError, match=re.escape(complaint)):
        read(tmp_path / "file", None)


def test_dead_letters_of_artemis_in_a_cycle_stay_in_their_queues() -> None:
    settings = "".join(
        f'<address-setting match="{name}"><dead-letter-address>{dead}</dead-letter-address></address-setting>'
        for name, dead in (("a", "b"), ("b", "a"), ("c", "a"))
    )
    addresses = "".join(f'<address name="{name}"><anycast><queue name="{name}"/></anycast></address>' for name in "abc")
    content = f"<address-settings>{settings}</address-settings><addresses>{addresses}</addresses>"
    steps = artemis.steps(broker_xml(content))
    assert [options_of(step).get("deadLetterQueue") for step in steps[:3]] == [None, None, "a"]
    assert ["a → b → a is a cycle" in "".join(step.notes) for step in steps[:3]] == [True, True, False]


def test_users_and_permissions_are_exported_on_request(tmp_path: Path, penstock: Run, broker: Broker) -> None:
    first, second, file = tmp_path / "first.json", tmp_path / "second.json", tmp_path / "all.json"
    ann = User(credentials_of("secret", b"0123456789abcdef", 4096))
    users_file.edit(first, lambda users: users.add("ann", ann).permit("ann", "orders.*", [Right.SEND, Right.BROWSE]))
    users_file.edit(first, lambda users: users.permit("anonymous", "news", [Right.BROWSE]))
    file.write_text("of an earlier export")
    exported = penstock("definitions", "export", str(file), "--users-file", str(first), url=broker.url)
    assert exported.stdout == f"0 queues and 0 exchanges, with 1 user, written to {file}\n"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert "secret" not in json.loads(file.read_text())
    left = penstock("definitions", "import", str(file), url=broker.url)
    assert "left out  user ann: name the broker's users file with --data or --users-file" in left.stdout
    done = penstock("definitions", "import", str(file), "--users-file", str(second), url=broker.url)
    assert done.stdout.endswith("3 declared, 0 existed already, 0 refused\n"), done.stdout + done.stderr
    before, after = users_file.read(first), users_file.read(second)
    assert before is not None
    assert after is not None
    assert (before.users, before.permissions) == (after.users, after.permissions)
    users_file.edit(second, lambda users: users.add("ann", User(None, ("ann",))))
    refused = penstock("definitions", "import", str(file), "--users-file", str(second), url=broker.url)
    assert (refused.returncode, "user 'ann' exists with another password" in refused.stdout) == (1, True)
    assert users_file.read(second).users["ann"] == User(None, ("ann",))  # type: ignore[union-attr]


@pytest.mark.parametrize(
    ("expression", "patterns"),
    [
        (".*", ["*"]),
        ("^$", []),
        ("", []),
        ("^orders$", ["orders"]),
        ("orders", ["*orders*"]),
        ("^orders\\..*", ["orders.*"]),
        ("^(a|b\\.(c|d))$", ["a", "b.c", "b.d"]),
        ("^a$|^b", ["a", "b*"]),
        ("^(?:x|y)-.*-z$", ["x-*-z", "y-*-z"]),
        *(
            (text, None)
            for text in ("a+", "[ab]", "a.b", "^a\\d$", "(a", "a)", "a?", "(a)*", "^a$b", "\\*", ".*?", "a{2}", "(?i)a")
        ),
        ("(a|b)" * 7, None),
        ("(" * 1000, None),
    ],
    ids=lambda value: str(value)[:20],
)
def test_a_regular_expression_becomes_patterns_or_is_left_out(expression: str, patterns: list[str] | None) -> None:
    assert patterns_of(expression) == patterns


@given(st.text("ab.|()^$*\\", max_size=12), st.lists(st.text("ab.()", max_size=6), max_size=20))
def test_patterns_match_the_same_names_as_their_expression(expression: str, names: list[str]) -> None:
    patterns = patterns_of(expression)
    if patterns is None or expression == "":  # RabbitMQ's own rule
        return
    for name in filter(None, names):
        assert any(matches(pattern, name) for pattern in patterns) == bool(re.search(expression, name)), (patterns, name)


def test_the_name_of_a_binding_is_exported_and_imported_again(
    penstock: Run, broker: Broker, client: Client, tmp_path: Path
) -> None:
    client.call("queue.declare", queue="named.q")
    client.call("exchange.declare", exchange="named", type="topic")
    rule = {"exchange": "named", "queue": "named.q", "key": "#", "selector": "a = 1", "name": "rule"}
    assert client.call("exchange.bind", **rule)["created"]
    file = tmp_path / "all.json"
    assert penstock("definitions", "export", str(file), url=broker.url).returncode == 0
    assert penstock("definitions", "import", str(file), url=broker.url).returncode == 0  # it exists
    client.call("exchange.unbind", exchange="named", queue="named.q")
    assert penstock("definitions", "import", str(file), url=broker.url).returncode == 0
    (named,) = (exchange for exchange in client.call("exchange.list")["exchanges"] if exchange["exchange"] == "named")
    assert [(binding["name"], binding["selector"]) for binding in named["bindings"]] == [("rule", "a = 1")]
    with pytest.raises(AlreadyExists, match="has a binding 'rule'"):
        client.call("exchange.bind", **{**rule, "selector": "a = 2"})
