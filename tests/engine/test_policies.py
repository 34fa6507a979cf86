"""E4 Q21: policies by name pattern: options at a declaration, and nodes created by their first use."""

from __future__ import annotations

import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import apply
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.events import QueueAltered, QueueDeclared
from penstock.broker_core.engine.model.policies import Policies, Policy

from .harness import Engine


def test_Q21_the_first_policy_that_names_it_adds_options_to_a_declaration() -> None:
    engine = Engine()
    engine.state.policies = Policies(
        [
            Policy("orders.priority.*", type="priority", options={"levels": 3}),
            Policy("orders.*", options={"maxMessages": 7, "overflow": "reject"}),
            Policy("topics.*", type="topic", options={"unroutable": "drop"}),
            Policy("*", options={"maxMessages": 9}),
        ]
    )
    engine.run(c.DeclareQueue("orders.eu"), c.DeclareQueue("orders.us", options={"maxMessages": 5}), c.DeclareQueue("else"))
    engine.run(c.DeclareQueue("orders.priority.a", "priority"), c.DeclareQueue("orders.priority.b"))
    engine.run(c.DeclareExchange("topics.a", "topic"), c.DeclareExchange("topics.b", "fanout"))
    assert {name: queue.options for name, queue in engine.state.queues.items()} == {
        "orders.eu": {"maxMessages": 7, "overflow": "reject"},
        "orders.us": {"maxMessages": 5, "overflow": "reject"},
        "else": {"maxMessages": 9},
        "orders.priority.a": {"levels": 3},
        "orders.priority.b": {},
    }
    assert {name: exchange.options for name, exchange in engine.state.exchanges.by_name.items()} == {
        "topics.a": {"unroutable": "drop"},
        "topics.b": {},
    }
    assert engine.recovered().persisted() == engine.persisted(), "the resulting options are journaled, the policy is not"


@pytest.mark.parametrize("name", ["", "a/b", "a\nb", "a\u202eb", "x" * 256, 7])
def test_Q13_E3_no_option_names_what_nobody_can_declare(name: object) -> None:
    """For declarations, alterations and policies, the error names the field and its valid values."""
    engine = Engine()
    engine.run(c.DeclareQueue("q"))
    for option, refused in (
        ("deadLetterQueue", lambda: engine.run(c.DeclareQueue("r", options={"deadLetterQueue": name}))),
        ("deadLetterQueue", lambda: engine.run(c.AlterQueue("q", {"deadLetterQueue": name}))),
        ("deadLetterQueue", Policy("*", options={"deadLetterQueue": name}).check),
        ("alternate", lambda: engine.run(c.DeclareExchange("e", options={"alternate": name}))),
        ("alternate", Policy("*", type="topic", options={"alternate": name}).check),
    ):
        with pytest.raises(errors.InvalidRequest, match=f"{option}.* 1 to 255 printable characters without '/'"):
            refused()


def test_numbers_among_options_are_written_with_the_digits_0_to_9() -> None:
    engine = Engine()
    engine.run(c.DeclareQueue("q", options={"maxAttempts": "3"}))
    with pytest.raises(errors.InvalidRequest, match="option 'maxAttempts': '٣' is not a whole number from 0 to 999999"):
        engine.run(c.AlterQueue("q", {"maxAttempts": "٣"}))


def test_Q13_what_an_older_version_took_for_a_name_is_still_read() -> None:
    engine = Engine()
    declared, altered = QueueDeclared("q", "fifo", {"deadLetterQueue": "a/b"}), QueueAltered("q", {"deadLetterQueue": "b/c"})
    for position, event in enumerate((declared, altered)):
        apply(engine.state, event, position)
    engine.run(c.AlterQueue("q", {"maxAttempts": 3}))
    assert engine.from_snapshot().state.queues["q"].rules.dead_letter_queue == "b/c"


def test_Q21_what_only_the_policy_says_is_not_compared_when_it_is_declared_again() -> None:
    engine = Engine()
    engine.state.policies = Policies([Policy("*", options={"maxMessages": 7}), Policy("x", type="topic")])
    assert engine.run(c.DeclareQueue("q", options={"overflow": "reject"})) is True
    engine.state.policies = Policies([Policy("*", options={"maxMessages": 8})])
    assert engine.run(c.DeclareQueue("q", options={"overflow": "reject"})) is False
    for options in ({}, {"overflow": "reject", "maxMessages": 8}):
        with pytest.raises(errors.AlreadyExists):
            engine.run(c.DeclareQueue("q", options=options))
    assert engine.state.queues["q"].options == {"maxMessages": 7, "overflow": "reject"}


def test_E4_who_makes_what_on_first_use() -> None:
    policies = Policies([Policy("no.*"), Policy("jobs.*", create=True), Policy("t.*", create=True, type="topic")])
    assert policies.maker_of("no.1") is None
    assert policies.maker_of("other") is None
    jobs, topics = policies.maker_of("jobs.1"), policies.maker_of("t.1")
    assert (jobs and (jobs.makes, jobs.of_exchanges)) == ("fifo", False)
    assert (topics and (topics.makes, topics.of_exchanges)) == ("topic", True)


@pytest.mark.parametrize(
    ("policy", "error"),
    [
        (Policy("*", type="heap"), "type 'heap'.*fifo.*topic"),
        (Policy("*", options={"colour": 1}), "colour"),
        (Policy("*", options={"levels": 3}), "levels.*type fifo"),
        (Policy("*", type="topic", options={"maxMessages": 3}), "maxMessages.*exchanges"),
    ],
)
def test_Q21_a_wrong_policy_is_refused_by_field(policy: Policy, error: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=error):
        policy.check()
