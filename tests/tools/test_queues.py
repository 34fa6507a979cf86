"""docs/queues.md matches the code, and its commands run.

It contains every option with its default and allowed values, every outcome and every return.
"""

from __future__ import annotations

import itertools
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.broker_core.engine.columns.states import (
    COUNTS_BY_RULE,
    LIMITED_BY_RULE,
    RETURN_COUNTS_ATTEMPT,
    UNLIMITED,
    Cause,
    Outcome,
    Reason,
)
from penstock.broker_core.engine.model import exchange_options
from penstock.broker_core.engine.model.options import DEFAULT_ATTEMPTS, OPTIONS, TYPES, QueueOption
from penstock.broker_core.selectors.names import _FIELDS
from penstock.broker_core.server.child import Broker
from penstock.connector.options import OUTCOMES

from ..engine.test_pairs import FEATURES
from .pages import rows, section

NEVER = "never for `maxAttempts`"
BLOCK = re.compile(r"^```(bash|toml)\n(.*?)^```", re.MULTILINE | re.DOTALL)

#: Runs command lines in one process: a start of Python takes longer than most of them. A line is its text, the path of its stdin
#: (or null) and the arguments of `penstock`.
RUN = """
import json, sys
from penstock.broker_core.cli import main
for line, stdin, arguments in json.loads(sys.argv[1]):
    print("$", line, flush=True)
    sys.stdin = open(stdin) if stdin else sys.stdin
    code = main(arguments)
    if code:
        sys.exit(f"{line}: exit code {code}")
"""


class Row(NamedTuple):
    """A row of a table of options: `name` | values, the **default** in bold | …"""

    values: str
    more: list[str]

    @property
    def bold(self) -> set[str]:
        return set(re.findall(r"\*\*(.+?)\*\*", self.values))

    @property
    def plain(self) -> str:
        return self.values.replace("**", "")


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "queues.md").read_text()


def declared(text: str) -> dict[str, Row]:
    table: dict[str, Row] = {}
    for name, values, *more in rows(text)[1:]:
        assert name.strip("`") not in table, f"{name} is there twice"
        table[name.strip("`")] = Row(values, more)
    return table


def camel(rule: str) -> str:
    """The option of a rule."""
    return re.sub("_(.)", lambda letter: letter[1].upper(), rule)


def number(value: int) -> str:
    return f"{value:,}"


def default(name: str, option: QueueOption) -> set[str]:
    if name == "maxAttempts":
        return {number(DEFAULT_ATTEMPTS)}
    if name == "archive":
        return {"true", "false"}
    if name == "archiveMessage":
        return set()  # the broker's setting
    if option.default is None:
        return {"none"} if name != "key" else set()  # required, so without a default
    if isinstance(option.default, bool):
        return {str(option.default).lower()}
    return {number(option.default) if isinstance(option.default, int) else option.default}


def test_every_option_of_a_queue_with_its_default_and_what_is_allowed(page: str) -> None:
    table = declared(section(page, "All options"))
    assert set(table) == set(OPTIONS)
    for name, option in OPTIONS.items():
        assert table[name].more[0] == ("yes" if option.alterable else "no"), name
        assert table[name].bold == default(name, option), name
        if isinstance(option.allowed, tuple):
            assert tuple(table[name].plain.split(", ")) == option.allowed, name
        elif isinstance(option.allowed, range):
            low, high = option.allowed.start, option.allowed.stop - 1
            assert table[name].plain.startswith(f"{number(low)} to {number(high)}"), name
        else:
            assert table[name].plain.removeprefix("none, ") == option.allowed, name
    for type_ in TYPES:
        assert f"`--type {type_}`" in section(page, type_)


def test_every_value_of_an_option_that_has_a_table_of_its_own(page: str) -> None:
    for name in ("overflow", "groups", "consumers", "lifetime", "rejected"):
        table = next(block for block in page.split("\n\n") if block.startswith(f"| `{name}` |"))
        assert tuple(row[0].strip("`") for row in rows(table)[1:]) == OPTIONS[name].allowed, name


def test_every_option_and_type_of_an_exchange(page: str) -> None:
    options = declared(section(page, "Options of an exchange"))
    assert set(options) == set(exchange_options.OPTIONS)
    for name, allowed in exchange_options.OPTIONS.items():
        if allowed is None:
            assert (options[name].bold, options[name].plain) == ({"none"}, "none, the name of a queue or an exchange")
        else:
            assert (options[name].bold, tuple(options[name].plain.split(", "))) == ({allowed[0]}, allowed)
    exchanges = section(page, "Exchanges")
    assert "Types: " + ", ".join(exchange_options.TYPES).replace("direct", "**direct**") + "." in exchanges
    assert all(f"| `{type_}` |" in exchanges for type_ in exchange_options.TYPES)


def test_every_outcome(page: str) -> None:
    """By the names that Spark's option has."""
    outcomes = [row[0].strip("`") for row in rows(section(page, "How a message ends"))[1:]]
    names = [outcome.name.lower().replace("_", "-") for outcome in Outcome if outcome is not Outcome.NONE]
    assert sorted(outcomes) == sorted(names) == sorted(OUTCOMES)


def test_the_pairs_of_features_are_those_that_histories_are_played_of(page: str) -> None:
    """Each pair once, in the order of the features. Pairs without a row do not interact."""
    pairs = [(left, right) for left, right, _ in rows(section(page, "Pairs of features"))[1:]]
    assert pairs == [pair for pair in itertools.combinations(FEATURES, 2) if pair in pairs]


def test_every_return_and_whether_it_counts(page: str) -> None:
    """C8"""
    returns = {row[0].strip("`"): row[2:] for row in rows(section(page, "Returned messages"))[1:]}
    options = {rule: camel(rule) for rule in COUNTS_BY_RULE.values()}
    assert returns == {
        cause.name: [
            "yes" if RETURN_COUNTS_ATTEMPT[cause] else "no",
            f"`{options[COUNTS_BY_RULE[cause]]}`" if cause in COUNTS_BY_RULE else "",
            f"`{camel(LIMITED_BY_RULE[cause])}`" if cause in LIMITED_BY_RULE else NEVER if cause in UNLIMITED else "",
        ]
        for cause in Cause
    }


def test_every_reason_of_a_dead_letter(page: str) -> None:
    reasons = ", ".join(reason.name.lower() for reason in Reason if reason is not Reason.NONE)
    assert f"| `x-opt-death-reason` | why: {reasons} |" in section(page, "Dead letters")


def test_every_name_of_a_selector(page: str) -> None:
    cells = " ".join(cell for row in rows(section(page, "Selectors")) for cell in row[:2])
    names = set(re.findall(r"`((?:JMS|amqp\.)\w+)`", cells))
    assert names == set(_FIELDS)


def test_every_promise_of_a_queue_has_an_id_in_the_last_table_alone(page: str) -> None:
    """Q1 to Q24, C1 to C12, E1 to E4: each feature has a row."""
    before, _, last = page.partition("\n## Promises\n")
    expected = [f"{letter}{n}" for letter, count in (("Q", 24), ("C", 12), ("E", 4)) for n in range(1, count + 1)]
    ids = [row[0] for row in rows(last)[1:]]
    assert ids[: len(expected)] == expected
    assert len(set(ids)) == len(ids)
    assert not re.search(rf"\b({'|'.join(ids)})\b", before)


def commands(page: str, folder: Path) -> Iterator[tuple[str, str | None, list[str]]]:
    for language, text in BLOCK.findall(page):
        for line in text.splitlines() if language == "bash" else ():
            echo, pipe, command = line.rpartition(" | ")
            stdin = None
            if pipe:
                stdin = folder / f"stdin-{len(list(folder.iterdir()))}"
                stdin.write_text(shlex.split(echo)[1] + "\n")
            yield line, stdin and str(stdin), shlex.split(command)[1:]


def test_its_commands_run_and_do_what_it_says(page: str, tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text("".join(text for language, text in BLOCK.findall(page) if language == "toml"))
    (folder := tmp_path / "stdin").mkdir()
    with Broker(tmp_path / "data", config=config, fsync="never") as broker:
        environment = {**os.environ, "PENSTOCK_URL": broker.amqp_url, "COLUMNS": "200"}
        lines = json.dumps(list(commands(page, folder)))
        run = [sys.executable, "-c", RUN, lines]
        done = subprocess.run(run, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=200, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-2000:]
    printed = dict(part.split("\n", 1) for part in done.stdout.split("$ ")[1:])
    assert printed["penstock receive calls --count 1"] == "now\n"
    assert printed["penstock receive prices --browse"] == "102.0\n"
    assert re.search(r" replaced +", printed["penstock queue peek prices --states archived"])
    assert printed["""penstock receive orders --selector "region = 'eu' AND JMSPriority > 4\""""] == "for the eu\n"
    assert "message of orders discarded" in printed['penstock queue discard orders --sequence 1 --error "not wanted"']
