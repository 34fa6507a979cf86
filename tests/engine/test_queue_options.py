"""An option of a queue is declared once, as a field of `Rules`. These tests fail if a new option lacks a part."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.cli.arguments import parser
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes, Coded
from penstock.broker_core.engine.model.admission import NONE, Admission, Candidates, admit
from penstock.broker_core.engine.model.options import OPTIONS, TYPES, QueueOption, Rules, checked, rules
from penstock.broker_core.engine.model.policies import Policies, Policy

from .harness import START, Engine
from .test_everything import OPTIONS as IN_HISTORIES

ROWS = 12  # more than any limit below
NEEDED = {"lastvalue": {"key": "subject"}}  # by type: its required options
#: Options without values in the random histories of test_everything, and why.
NOT_IN_HISTORIES = {
    "durability": "decides when a sender gets its reply, not where a message goes",
    "archiveMessage": "decides how the archive stores a message, not where it goes",
    "defaultOutcomeCounts": "test_ends_machine has it",
    "lockCounts": "as lostCounts",
    "maxBytes": "as maxMessages",
    "duplicateWindow": "test_kinds has it",
    "duplicateTime": "test_kinds has it",
    "groups": "each history draws one, with its type",
    "lifetime": "test_lifetime_machine has it",
    "levels": "each history draws one, with its type",
    "key": "each history draws one, with its type",
    "maxKeys": "each history draws one, with its type",
}


def others(name: str, option: QueueOption) -> Iterator[Any]:
    """Return allowed values other than the default, in their own types; for a number a small one, which limits messages."""
    if isinstance(option.allowed, range):
        yield 3
    elif isinstance(option.allowed, tuple):
        values: list[Any] = (
            [text == "true" for text in option.allowed] if option.allowed == ("true", "false") else [*option.allowed]
        )
        yield from (value for value in values if value != option.default)
    else:
        yield {"key": "subject"}.get(name, "dead")


EACH = [pytest.param(name, value, id=f"{name}={value}") for name, option in OPTIONS.items() for value in others(name, option)]


def declared(name: str, value: Any) -> tuple[str, dict[str, Any]]:
    """Return a queue type and options: this option and the required ones."""
    kind = OPTIONS[name].type or "fifo"
    return kind, {**NEEDED.get(kind, {}), name: value}


@pytest.mark.parametrize(("name", "value"), EACH)
def test_an_option_is_declared_as_json_and_as_text_shown_kept_and_altered(name: str, value: Any) -> None:
    kind, options = declared(name, value)
    text = str(value).lower() if isinstance(value, bool) else str(value)
    engine = Engine()
    engine.run(c.StartBroker(), c.DeclareQueue("json", kind, options), c.DeclareQueue("text", kind, {**options, name: text}))
    engine.state.policies = Policies([Policy("policy", type=kind, options=options)])
    engine.run(c.DeclareQueue("policy", kind))
    for queue in ("json", "text", "policy"):
        (stat,) = engine.run(c.Stat(queue))
        assert stat["options"][name] == value, f"`queue stat` of the queue declared by {queue} does not contain {name}"
    assert engine.recovered().persisted() == engine.persisted()
    assert engine.from_snapshot().state.queues["json"].rules == engine.state.queues["json"].rules
    plain = Engine()
    plain.run(c.DeclareQueue("q", kind, NEEDED.get(kind, {})))
    alter = c.AlterQueue("q", {name: value})
    if not OPTIONS[name].alterable:
        if name not in NEEDED.get(kind, {}):
            with pytest.raises(errors.InvalidRequest, match=f"option '{name}' of queue 'q' is .* nothing was changed"):
                plain.run(alter)
        return
    plain.run(alter)
    assert plain.state.queues["q"].rules == engine.state.queues["json"].rules
    plain.run(c.AlterQueue("q", {name: None}))
    assert plain.state.queues["q"].options == NEEDED.get(kind, {}), "reset to its default"


@pytest.mark.parametrize("name", OPTIONS)
def test_a_value_that_is_not_allowed_is_refused_by_name(name: str) -> None:
    kind, options = declared(name, -1)
    for wrong in (-1, "", [], {"a": 1}):
        with pytest.raises(errors.InvalidRequest, match=f"option '{name}': .* is not "):
            checked(kind, {**options, name: wrong})
        with pytest.raises(errors.InvalidRequest, match=f"option '{name}': .* is not "):
            Policy("*", type=kind, options={**options, name: wrong}).check()
    for other_type in set(TYPES) - {OPTIONS[name].type} if OPTIONS[name].type else ():
        with pytest.raises(errors.InvalidRequest, match=f"option '{name}' is not known of type {other_type}"):
            checked(other_type, {name: -1})


def full_of_everything(kind: str, options: dict[str, Any]) -> tuple[Any, Attributes]:
    """Return a queue with messages, and attributes of further messages with repeated ids, closed groups and many keys."""
    engine = Engine()
    engine.run(c.StartBroker(), c.DeclareQueue("q", kind, options))
    names = [f"n{row}" for row in range(ROWS)]
    coded = Coded(names, np.arange(ROWS) % 5 + 1)
    ids = np.array([f"id{row % 4}".encode() for row in range(ROWS)], "S16")
    attributes = Attributes(
        priority=np.arange(ROWS) % 10,
        expiry=np.full(ROWS, START // 1000 + 5),
        due=np.where(np.arange(ROWS) % 2, START // 1000 + 5, 0),
        group=coded,
        closes=np.arange(ROWS) % 2,
        key=coded,
        ids=ids,
    )
    for _ in range(2):
        engine.run(c.Enqueue("q", ROWS, 7, attributes=attributes if options else Attributes()))
    return engine.state.queues["q"], attributes


@pytest.mark.parametrize(("name", "value"), EACH)
def test_a_queue_is_unrestricted_only_where_each_message_that_arrives_gets_a_place(name: str, value: Any) -> None:
    """An `unrestricted` queue admits all arrivals, so an option that refuses one must be declared `on_arrival`."""
    kind, options = declared(name, value)
    with_option = rules(kind, checked(kind, options))
    needed = rules(kind, checked(kind, NEEDED.get(kind, {})))
    assert with_option.unrestricted == (needed.unrestricted and not OPTIONS[name].on_arrival)
    if not with_option.unrestricted:
        return
    queue, attributes = full_of_everything(kind, options)
    for whole in (False, True):
        try:
            admitted = admit(queue, Candidates(ROWS, 7, attributes), START // 1000, whole=whole)
        except errors.QueueFull:
            admitted = Admission(NONE)
        assert admitted.rows is None, f"option {name!r} refuses messages: declare it with on_arrival=True"


def test_somebody_asks_for_the_value_of_each_option(repository: Path) -> None:
    """An option that no rule reads would be accepted and ignored."""
    package = repository / "broker_core"
    files = [file for file in package.rglob("*.py") if file.name != "options.py"]
    # Read as an attribute of the rules, or through the tables of `states` that define an attempt.
    read = set(re.findall(r"[.\"]([a-z_]+)", "".join(file.read_text() for file in files)))
    for name in Rules.__dataclass_fields__:
        assert name in read, f"nothing in broker_core reads rules.{name}: the option does nothing yet"


@pytest.mark.parametrize("command", ["declare", "alter"])
def test_help_says_each_option(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parser().parse_args(["queue", command, "--help"])
    help_text = capsys.readouterr().out
    for name, option in OPTIONS.items():
        assert f"\n  {name}: " in help_text
        assert f"\n      {option.help}\n" in help_text
        assert option.help.endswith((".", "?")), f"the help of {name!r} is a sentence"


def test_each_option_is_in_the_random_histories_or_is_said_to_be_elsewhere() -> None:
    for name in OPTIONS:
        assert (name in IN_HISTORIES) != (name in NOT_IN_HISTORIES), (
            f"option {name!r} has no values in OPTIONS of test_everything, nor a reason in NOT_IN_HISTORIES"
        )


@pytest.mark.parametrize("meant", ["max_attempts", "MaxAttempts", "maxAtempts"])
def test_an_option_that_is_nearly_one_of_ours_is_guessed(meant: str) -> None:
    with pytest.raises(
        errors.InvalidRequest, match=f"option '{meant}' is not known of type fifo: did you mean 'maxAttempts'[?]; known are "
    ):
        checked("fifo", {meant: 3})
    with pytest.raises(errors.InvalidRequest, match="option 'colour' is not known of type fifo; known are "):
        checked("fifo", {"colour": "blue"})
