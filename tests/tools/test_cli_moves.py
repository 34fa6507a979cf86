"""Q13 Q20 Q21 on the command line: altered, paused and resumed, moved, copied, redriven."""

from __future__ import annotations

import json
from typing import Any

import pytest

from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from .conftest import Run, enqueue, hold


@pytest.fixture
def ask(penstock: Run, broker: Broker) -> Any:
    def run(*words: str) -> Any:
        """The answer in JSON."""
        done = penstock("queue", *words, "--json", url=broker.url)
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def test_a_dead_letter_and_its_way_back(penstock: Run, broker: Broker, client: Client, ask: Any) -> None:
    """Q13 S10."""
    ask("declare", "dead")
    enqueue(client, "orders", b"one", b"two")
    ask("alter", "orders", "--option", "deadLetterQueue=dead")
    hold(client, "orders", "q1", 2)
    assert (
        penstock("lease", "settle", "q1", "--sequence", "1", "--outcome", "rejected", "--error", "no", url=broker.url).returncode
        == 0
    )
    stat = ask("stat", "orders")
    assert (stat["deadLettered"], stat["stayed"], stat["archived"]) == (1, 0, 1)
    (dead,) = ask("peek", "dead")
    notes = {"queue": "orders", "sequence": "1", "reason": "rejected", "error": "no"}
    assert {f"x-opt-death-{name}": value for name, value in notes.items()}.items() <= dead["annotations"].items()
    assert dead["body"] == "two"
    assert ask("redrive", "dead", "--sequence", "1-7") == {"redriven": 0, "stayed": 0}
    assert ask("redrive", "dead", "--selector", "amqp.subject = 'another'") == {"redriven": 0, "stayed": 0}
    assert ask("dead-letters", "dead") == [{"reason": "rejected", "error": "no", "messages": 1}]
    assert ask("redrive", "dead", "--reason", "rejected", "--error", "yes") == {"redriven": 0, "stayed": 0}
    refused = penstock("queue", "redrive", "dead", "--error", "no", url=broker.url)
    assert "--error needs --reason" in refused.stderr
    assert "1 dead letter of dead returned" in penstock("queue", "redrive", "dead", "--limit", "5", url=broker.url).stdout
    assert (ask("stat", "dead")["available"], ask("stat", "orders")["available"]) == (0, 1)


def test_a_message_is_replaced_by_an_edited_copy(penstock: Run, broker: Broker, client: Client, ask: Any) -> None:
    enqueue(client, "orders", b"one", b"two")
    ask("declare", "repaired")
    edits = ("--body", "edited", "--property", "a=b", "--to", "repaired")
    first = penstock("queue", "replace", "orders", "--sequence", "0", *edits, url=broker.url)
    assert first.stdout == "message 0 of orders is replaced by message 0 of repaired\n"
    (copy,) = ask("peek", "repaired")
    assert (copy["body"], copy["properties"]) == ("edited", {"a": "b"})
    second = penstock("queue", "replace", "orders", "--sequence", "0", *edits, url=broker.url)
    assert second.returncode != 0
    assert "message 0 of queue 'orders' has ended already" in second.stderr


def test_chosen_dead_letters_go_back(penstock: Run, broker: Broker, client: Client, ask: Any) -> None:
    """Q13 U5: by selector or by number, also dead letters that stayed. Wrong ranges and selectors are refused."""
    enqueue(client, "orders", b"one", b"two", b"three")
    ask("alter", "orders", "--option", "rejected=deadLetter", "--option", "deadLetterQueue=dead")  # which is not there: they stay
    hold(client, "orders", "q1", 3)
    for sequence in "012":
        client.call("lease.settleRow", lease="q1", sequence=int(sequence), outcome="rejected")
    assert ask("stat", "orders")["stayed"] == 3
    assert ask("redrive", "orders", "--sequence", "2", "--sequence", "1-1", "--limit", "1") == {"redriven": 1, "stayed": 0}
    assert [row["body"] for row in ask("peek", "orders")] == ["two"]
    assert ask("redrive", "orders", "--selector", "JMSPriority = 4") == {"redriven": 2, "stayed": 0}
    assert ask("stat", "orders")["available"] == 3
    for flag, wrong, complaint in (
        ("--sequence", "3-1", "the end of 3-1 is below its begin"),
        ("--sequence", "a-b", "invalid sequence number or range value: 'a-b'"),
        ("--selector", "a =", "the selector is wrong at character 4"),
    ):
        assert complaint in penstock("queue", "redrive", "orders", flag, wrong, url=broker.url).stderr


def test_a_living_queue_is_altered_and_paused(penstock: Run, broker: Broker, client: Client, ask: Any) -> None:
    """Q21."""
    ask("declare", "orders")
    assert ask("alter", "orders", "--option", "maxAttempts=3") == {"queue": "orders", "altered": True}
    assert ask("stat", "orders")["options"]["maxAttempts"] == 3
    assert "had these options already" in penstock("queue", "alter", "orders", "--option", "maxAttempts=3", url=broker.url).stdout
    assert ask("alter", "orders", "--reset", "maxAttempts")["altered"]
    refused = penstock("queue", "alter", "orders", "--option", "groups=held", url=broker.url)
    assert (refused.returncode, "maxAttempts" in refused.stderr) == (1, True)
    unknown = penstock("queue", "alter", "orders", "--option", "maxAttemps=3", url=broker.url)
    assert (unknown.returncode, "did you mean 'maxAttempts'?" in unknown.stderr) == (1, True)
    assert penstock("queue", "alter", "orders", url=broker.url).returncode == 2
    assert ask("pause", "orders")["changed"]
    assert not ask("pause", "orders")["changed"]
    assert ask("stat", "orders")["paused"]
    assert [line.split()[2] for line in penstock("queue", "list", url=broker.url).stdout.splitlines()] == ["paused", "yes"]
    assert "delivers" in penstock("queue", "resume", "orders", url=broker.url).stdout
    assert not ask("stat", "orders")["paused"]


def test_a_name_that_looks_like_a_number_is_a_name(penstock: Run, broker: Broker, client: Client, ask: Any) -> None:
    """Q13 Q21 E3: values of a shell have no types."""
    ask("declare", "7")
    ask("declare", "orders", "--option", "deadLetterQueue=7", "--option", "maxAttempts=3", "--option", "lostCounts=false")
    options = {"deadLetterQueue": "7", "maxAttempts": 3, "lostCounts": False}
    assert options.items() <= ask("stat", "orders")["options"].items()
    assert penstock("exchange", "declare", "news", "--option", "alternate=7", url=broker.url).returncode == 0
    assert client.call("exchange.list")["exchanges"][0]["options"] == {"alternate": "7"}


def test_messages_are_moved_and_copied(penstock: Run, broker: Broker, client: Client, ask: Any) -> None:
    """Q20."""
    ask("declare", "small", "--option", "maxMessages=4", "--option", "overflow=reject")
    enqueue(client, "orders", *[b"%d" % number for number in range(6)])
    assert (
        "2 messages of orders moved to small"
        in penstock("queue", "move", "orders", "small", "--limit", "2", url=broker.url).stdout
    )
    assert ask("copy", "orders", "small", "--from", "3", "--to", "3") == {"copied": 1, "full": False}
    assert [row["body"] for row in ask("peek", "small")] == ["0", "1", "3"]
    assert ask("move", "orders", "small") == {"moved": 1, "full": True}
    refused = penstock("queue", "move", "orders", "small", url=broker.url)
    assert (refused.returncode, "full" in refused.stderr) == (1, True)
    assert ask("stat", "orders")["available"] == 3


def test_a_wrong_target_is_refused_though_there_is_nothing_to_send(penstock: Run, broker: Broker, ask: Any) -> None:
    """Q20"""
    ask("declare", "never used")
    assert ask("redrive", "never used") == {"redriven": 0, "stayed": 0}
    for way in ("move", "copy"):
        assert "nowhere" in penstock("queue", way, "never used", "nowhere", url=broker.url).stderr
        assert "same queue" in penstock("queue", way, "never used", "never used", url=broker.url).stderr
    ask("declare", "orders")
    assert ask("move", "never used", "orders") == {"moved": 0, "full": False}
