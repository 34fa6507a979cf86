"""Rules of subscriptions: the requests of the vendor's rule managers, and the messages that the rules select.

The SDKs send the same maps: a true filter is the SQL filter `1=1`.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Disposition, Properties, Transfer
from penstock.broker_core.amqp.types import Described, Int, ULong
from penstock.broker_core.amqp_plane.conditions import Refusal
from penstock.broker_core.amqp_plane.service_bus import rule_filters
from penstock.broker_core.engine import commands as c
from penstock.broker_core.security import keys_file
from penstock.broker_core.security.audit import AuditFilter
from penstock.broker_core.security.log_limit import LINES, PEERS

from .harness import Stage, stage
from .logins import Site, user
from .service_bus import LISTENER
from .test_service_bus_requests import Manager

ADD, REMOVE, ENUMERATE = "com.microsoft:add-rule", "com.microsoft:remove-rule", "com.microsoft:enumerate-rules"
SUBSCRIPTION = "news/Subscriptions/audit"
RULE, EMPTY_ACTION = 0x13700000004, 0x13700000005
SQL, TRUE, FALSE, CORRELATION = 0x1370000006, 0x1370000007, 0x1370000008, 0x1370000009
DEFAULT = ("$Default", TRUE, [])


class Rules(Manager):
    """A rule manager of the subscription `audit` of the topic `news`, and a sender to the topic at handle 4."""

    def __init__(self, stage: Stage, keys: dict[str, str] | None = None) -> None:
        super().__init__(stage, SUBSCRIPTION, keys)
        self.cbs.put(self.cbs.token(next(iter(self.cbs.keys)), "news"), "sb://localhost/news")
        self._count = 1  # the delivery ids continue
        self.script.sender("news", 4)

    def add(self, name: object, description: object) -> tuple[int, Any, Any]:
        return self.ask(ADD, {"rule-name": name, "rule-description": description})

    def add_sql(self, name: str, expression: object) -> tuple[int, Any, Any]:
        return self.add(name, {"sql-filter": {"expression": expression}})

    def remove(self, name: object) -> tuple[int, Any, Any]:
        return self.ask(REMOVE, {"rule-name": name})

    def list(self, skip: int = 0, top: int = 100) -> list[tuple[str, int, list[Any]]]:
        """Return name, descriptor and fields of the filter of each rule."""
        status, _, body = self.ask(ENUMERATE, {"skip": Int(skip), "top": Int(top)})
        assert status == (204 if body is None else 200)
        rules = []
        for entry in [] if body is None else body["rules"]:
            assert entry["rule-description"].descriptor == ULong(RULE)
            shown, action, name = entry["rule-description"].value
            assert action == Described(ULong(EMPTY_ACTION), [])
            rules.append((name, shown.descriptor, shown.value))
        return rules

    def selects(self, message: Message) -> bool:
        """Send a message to the topic, and return whether the subscription gets it."""
        before = sum(self.script.stage.counts("news.audit").values())
        self._count += 1
        transfer = Transfer(handle=4, delivery_id=self._count, delivery_tag=bytes([self._count]), message_format=0)
        self.script.send((transfer, message.encode()))
        self.script.expect(Disposition)
        after = sum(self.script.stage.counts("news.audit").values())
        assert after - before in (0, 1), "a message that matches two rules arrives once"
        return after > before


def about(subject: str | None = None, properties: Properties | None = None, **more: object) -> Message:
    properties = properties or (None if subject is None else Properties(subject=subject))
    return Message(properties=properties, application_properties=dict(more), data=[b"x"])


def make_topic(stage: Stage, kind: str = "topic") -> None:
    stage.exchange("news", kind)
    stage.declare("news.audit")
    stage.service.submit(c.Bind("news", "news.audit", "#" if kind == "topic" else ""))


def test_a_filter_of_any_length_is_refused_quickly() -> None:
    for expression in ("1 = 1 OR " * 100_000, "a IN (1, " * 100_000, "a " * 100_000):
        with pytest.raises(Refusal, match="characters; at most 4,096 are allowed"):
            rule_filters.of_sql(expression)


@pytest.fixture(params=["topic", "fanout", "headers"])
def rules(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Rules]:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,)) as made:
        make_topic(made, request.param)
        yield Rules(made)


def test_the_default_rule_gives_way_to_others(rules: Rules) -> None:
    assert rules.list() == [DEFAULT]
    assert rules.selects(about("weather"))
    assert rules.remove("$Default")[0] == 200
    assert rules.list() == []
    assert not rules.selects(about("weather"))
    assert rules.add_sql("goals", "sys.Label = 'goal' AND points > 1")[0] == 200
    assert rules.add("urgent", {"correlation-filter": {"label": "news", "properties": {"urgent": True}}})[0] == 200
    seen = [(about("goal", points=2), True), (about("goal", points=1), False), (about("goal"), False)]
    seen += [(about("news", urgent=True), True), (about("news", urgent=False), False), (about("other", urgent=True), False)]
    assert [rules.selects(message) for message, _ in seen] == [selected for _, selected in seen]
    correlation = [None, None, None, None, "news", None, None, None, {"urgent": True}]
    assert rules.list() == [
        ("goals", SQL, ["sys.Label = 'goal' AND points > 1"]),
        ("urgent", CORRELATION, correlation),
    ]
    assert rules.list(skip=1) == [("urgent", CORRELATION, correlation)]
    assert [name for name, _, _ in rules.list(top=1)] == ["goals"]
    assert rules.list(skip=2) == []
    assert rules.remove("goals")[0] == 200
    assert not rules.selects(about("goal", points=2))
    assert rules.remove("goals")[:2] == (404, "amqp:not-found")


def test_a_subscription_has_a_limited_number_of_rules(rules: Rules, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("penstock.broker_core.amqp_plane.service_bus.rules.MAX_RULES", 2)
    assert rules.add_sql("a", "x = 1")[0] == 200
    assert rules.add_sql("b", "x = 2")[:2] == (403, "amqp:resource-limit-exceeded")
    rules.remove("$Default")
    assert rules.add_sql("b", "x = 2")[0] == 200


def test_true_and_false_filters(rules: Rules) -> None:
    rules.remove("$Default")
    assert rules.add_sql("never", "1=0")[0] == 200
    assert not rules.selects(about())
    assert rules.add("none", {"false-filter": {}})[0] == 200
    assert not rules.selects(about())
    assert rules.add_sql("always", "1=1")[0] == 200
    assert rules.selects(about())
    assert rules.add("all", {})[0] == 200
    listed = [("never", SQL, ["1=0"]), ("none", FALSE, []), ("always", SQL, ["1=1"]), ("all", TRUE, [])]
    assert rules.list() == listed
    with rules.script.stage.service.turn() as turn:
        bindings = turn.state.exchanges.by_name["news"].bindings.values()
        assert [binding.looks_inside for binding in bindings] == [True, True, False, False], "true filters cost nothing"


def test_a_message_that_matches_two_rules_arrives_once(rules: Rules) -> None:
    rules.add_sql("one", "a = 1")
    rules.add_sql("two", "a > 0")
    assert rules.selects(about(a=1))


def test_a_name_belongs_to_one_rule(rules: Rules) -> None:
    assert rules.add_sql("goals", "a = 1")[0] == 200
    assert rules.add_sql("goals", "a = 2")[:2] == (409, "com.microsoft:entity-already-exists")
    assert rules.add_sql("$Default", "a = 2")[:2] == (409, "com.microsoft:entity-already-exists")
    assert rules.add_sql("the same filter", "a = 1")[0] == 200
    assert [name for name, _, _ in rules.list()] == ["$Default", "goals", "the same filter"]


def test_rules_outlive_the_broker(tmp_path: Path) -> None:
    with stage(tmp_path, listeners=(LISTENER,)) as made:
        make_topic(made)
        rules = Rules(made)
        rules.remove("$Default")
        rules.add_sql("goals", "sys.label='goal'")
    with stage(tmp_path, listeners=(LISTENER,)) as made:
        rules = Rules(made)
        assert rules.list() == [("goals", SQL, ["sys.label='goal'"])]
        assert rules.selects(about("goal"))
        assert not rules.selects(about("rain"))
        assert rules.remove("goals")[0] == 200
        assert rules.list() == []


def test_bindings_of_an_operator_are_listed_and_removed(tmp_path: Path) -> None:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,)) as made:
        make_topic(made)
        made.service.submit(c.Bind("news", "news.audit", "sport.*", selector="a = 1"), c.Bind("news", "news.audit", "rain"))
        rules = Rules(made)
        assert rules.list() == [
            DEFAULT,
            ("binding-1", SQL, ["a binding with key sport.*, selector a = 1"]),
            ("binding-2", SQL, ["a binding with key rain"]),
        ]
        assert rules.remove("$Default")[0] == rules.remove("binding-1")[0] == 200
        assert [rules.selects(about(subject)) for subject in ("rain", "sport.football")] == [True, False]


def test_names_of_rules_are_listed_for_operators(rules: Rules) -> None:
    rules.add_sql("goals", "a = 1")
    (exchange,) = rules.script.stage.service.submit(c.ListExchanges())
    listed = exchange["bindings"][1]
    assert (listed["name"], listed["selector"]) == ("goals", "a = 1")
    assert "definition" not in listed


def test_changes_of_rules_are_in_the_audit_log(rules: Rules) -> None:
    """Also failed changes, as for other doors."""
    rules.add_sql("goals", "a = 1")
    rules.add_sql("bad", "a = ")
    rules.add_sql("goals", "a = 2")
    rules.remove("missing")
    rules.remove("goals")
    entries = rules.script.stage.service.audit.entries(AuditFilter(object="news"), 10)
    outcomes = {(entry["action"], entry["details"]["name"], entry["outcome"]): entry["error"] or "" for entry in entries}
    expected = {
        ("exchange.bind", "goals", "done"): "",
        ("exchange.bind", "bad", "failed"): "has no equivalent here",
        ("exchange.bind", "goals", "failed"): "has a rule 'goals'",
        ("exchange.unbind", "missing", "failed"): "has no rule 'missing'",
        ("exchange.unbind", "goals", "done"): "",
    }
    assert outcomes.keys() == expected.keys()
    assert all(text in outcomes[change] for change, text in expected.items())
    assert {entry["details"]["queue"] for entry in entries} == {"news.audit"}


def test_changes_that_fail_do_not_fill_the_log(rules: Rules) -> None:
    for _ in range(LINES // PEERS + 10):
        rules.remove("missing")
    rules.add_sql("goals", "a = 1")
    entries = rules.script.stage.service.audit.entries(AuditFilter(object="news"), 2 * LINES)
    assert Counter(entry["outcome"] for entry in entries) == {"done": 1, "failed": LINES // PEERS}


@pytest.mark.parametrize(
    ("description", "status", "reason"),
    [
        (None, 400, "'rule-description' is a map"),
        ("1=1", 400, "'rule-description' is a map"),
        ({"sql-filter": "a = 1"}, 400, "a filter is a map, not 'a = 1'"),
        ({"sql-filter": {"expression": None}}, 400, "is a text, not None"),
        ({"sql-filter": {"expression": " "}}, 400, "is a text, not ' '"),
        ({"sql-filter": {"expression": "a = "}}, 400, "has no equivalent here"),
        ({"sql-filter": {"expression": "a = " + "1 + " * 300 + "1"}}, 400, "deeper than 100 levels"),
        ({"sql-filter": {"expression": "sys.DeliveryCount > 1"}}, 400, "a rule here may compare sys.CorrelationId"),
        ({"sql-filter": {"expression": "newid() = a"}}, 400, "calls 'newid': rules have no functions here"),
        ({"sql-filter": {"expression": "a = @limit"}}, 400, "has '@' before 'limit'"),
        ({"sql-filter": {"expression": "a % 2 = 0"}}, 400, "has '%' before"),
        ({"sql-filter": {"expression": "other.a = 1"}}, 400, "which can be sys or user"),
        ({"sql-filter": {"expression": "a < 'b'"}}, 400, "strings and booleans have = and <> only"),
        ({"sql-filter": {"expression": "EXISTS a"}}, 400, "EXISTS without a name in parentheses"),
        ({"correlation-filter": {}}, 400, "a correlation filter needs a condition"),
        ({"correlation-filter": {"label": 1}}, 400, "is a text, not 1"),
        ({"correlation-filter": {"reply-to-session-id": "s"}}, 400, "no condition 'reply-to-session-id' here"),
        ({"correlation-filter": {"properties": [1]}}, 400, "are a map"),
        ({"correlation-filter": {"properties": {"a": {"b": 1}}}}, 400, "is a text, a number or a boolean"),
        ({"sql-filter": {"expression": "1=1"}, "sql-rule-action": {"expression": "SET a = 1"}}, 501, "selects messages"),
    ],
)
def test_what_a_selector_cannot_express_is_refused(tmp_path: Path, description: object, status: int, reason: str) -> None:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,)) as made:
        make_topic(made)
        rules = Rules(made)
        assert rules.add("bad", description)[0] == status
        assert reason in rules.description
        assert rules.list() == [DEFAULT]


def test_other_bad_requests_about_rules(rules: Rules) -> None:
    for name in (None, 7, "", "a\nb", "x" * 300):
        assert rules.add(name, {})[0] == 400
    assert rules.remove(7)[0] == 400
    assert rules.ask(ENUMERATE, {})[0] == rules.ask(ENUMERATE, {"skip": -1, "top": 1})[0] == 400
    assert rules.ask(ENUMERATE, {"skip": "a", "top": 1})[0] == 400
    assert rules.list() == [DEFAULT]


@pytest.mark.parametrize("entity", ["q", "news", "news/Subscriptions/audit/$DeadLetterQueue"])
def test_only_subscriptions_have_rules(tmp_path: Path, entity: str) -> None:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,)) as made:
        make_topic(made)
        made.declare("q")
        manager = Manager(made, entity)
        assert manager.ask(ENUMERATE, {"skip": 0, "top": 1})[:2] == (400, "amqp:not-allowed")
        assert "TOPIC/Subscriptions/NAME" in manager.description


def test_a_direct_exchange_has_no_rules(tmp_path: Path) -> None:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,)) as made:
        make_topic(made, "direct")
        rules = Rules(made)
        assert rules.add_sql("one", "a = 1")[0] == 501
        assert "--type topic" in rules.description


@pytest.mark.parametrize(("topic_rights", "status"), [("send", 401), ("send,receive", 200)])
def test_rules_are_changed_by_users_who_may_receive_from_the_topic(tmp_path: Path, topic_rights: str, status: int) -> None:
    """A new rule brings other messages of the topic into the queue."""
    made_keys = keys_file.with_new({}, "alice", bytes(keys_file.KEY_BYTES))
    keys_file.edit(keys_file.path_of(tmp_path / "users.json"), lambda _: made_keys)
    rights = {"alice": {"news": topic_rights, "news.audit": "receive"}}
    site = Site(tmp_path, {"alice": user()}, rights)
    with stage(tmp_path, access=site.access, fsync="never", listeners=(LISTENER,)) as made:
        make_topic(made)
        rules = Rules(made, {"alice": made_keys["alice"][0]})
        assert rules.list() == [DEFAULT]
        assert rules.add_sql("one", "a = 1")[0] == status
        assert rules.remove("$Default")[0] == status
        assert len(rules.list()) == 1


@pytest.mark.parametrize(
    ("sql", "selector"),
    [
        ("a = 1", "a = 1"),
        ("user.a = 'it''s' and [my name] IS NOT NULL", "a = 'it''s' AND \"my name\" IS NOT NULL"),
        ("sys.CORRELATIONID = 'c' OR \"b\" != TRUE", "amqp.correlation_id = 'c' OR b <> TRUE"),
        ("SYS.[SessionId] LIKE 'a!%%' ESCAPE '!'", "amqp.group_id LIKE 'a!%%' ESCAPE '!'"),
        (
            "sys.MessageId='m' AND sys.To='t' AND sys.ReplyTo='r'",
            "amqp.message_id = 'm' AND amqp.to = 't' AND amqp.reply_to = 'r'",
        ),
        ("sys.Subject = 'a' AND sys.ContentType = 'b'", "amqp.subject = 'a' AND amqp.content_type = 'b'"),
        ("NOT EXISTS(a) OR EXISTS ( user.b )", "NOT a IS NOT NULL OR b IS NOT NULL"),
        ("a IN ('x', 'y')", "a IN ('x', 'y')"),
        ("a NOT IN ('x')", "a NOT IN ('x')"),
        ("a IN (1, -2, 'x')", "a = 1 OR a = -2 OR a = 'x'"),
        ("a NOT IN (1, 2.5) AND b = 1", "NOT (a = 1 OR a = 2.5) AND b = 1"),
        ("JMSPriority = 010", '"JMSPriority" = 10'),
        ("(a + 1) * 2 >= .5 AND b", "(a + 1) * 2 >= 0.5 AND b"),
        ("1=1", None),
        ("TRUE", None),
        ("1=0", "1 = 0"),
    ],
)
def test_sql_becomes_a_selector(sql: str, selector: str | None) -> None:
    assert rule_filters.of_sql(sql) == selector


@pytest.mark.parametrize("length", range(60))
def test_a_filter_that_is_cut_short_is_refused_or_read(length: int) -> None:
    sql = "sys.Label IN ('a', 1) AND EXISTS([b c]) OR user.\"d\" NOT IN (1) != 2"
    with contextlib.suppress(Refusal):
        rule_filters.of_sql(sql[:length])
