"""docs/semantics.md says what the code has: every option with its default and what is allowed, every outcome, every return."""

from __future__ import annotations

import re
from pathlib import Path
from typing import NamedTuple

import pytest

from penstock.broker_core.engine.columns.states import (
    COUNTS_BY_RULE,
    LIMITED_BY_RULE,
    RETURN_COUNTS_ATTEMPT,
    Cause,
    Outcome,
    Reason,
)
from penstock.broker_core.engine.model import exchange_options
from penstock.broker_core.engine.model.options import DEFAULT_ATTEMPTS, OPTIONS, TYPES, Option
from penstock.broker_core.selectors.names import _FIELDS
from penstock.connector import options as of_spark

#: In a cell: `name`: what is allowed, the default in **bold**; `name` (fixed): the same, for as long as the queue lives.
SAID = re.compile(r"`(\w+)`( \(fixed\))?: (.+)")


class Said(NamedTuple):
    fixed: bool
    text: str

    @property
    def bold(self) -> set[str]:
        return set(re.findall(r"\*\*(.+?)\*\*", self.text))

    @property
    def plain(self) -> str:
        return self.text.replace("**", "")


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "semantics.md").read_text()


def section(page: str, title: str) -> str:
    assert f"\n## {title}\n" in page, title
    return page.partition(f"\n## {title}\n")[2].partition("\n## ")[0]


def rows(text: str) -> list[list[str]]:
    lines = [line.strip("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")] for line in lines if not line.startswith("---")]


def declared(text: str) -> dict[str, Said]:
    """What the third column of the tables says of options."""
    found: dict[str, Said] = {}
    for row in rows(text):
        for part in row[2].split("<br>") if len(row) > 2 else ():
            if match := SAID.fullmatch(part):
                assert match[1] not in found, f"{match[1]} is there twice"
                found[match[1]] = Said(bool(match[2]), match[3])
    return found


def camel(rule: str) -> str:
    """The option of a rule."""
    return re.sub("_(.)", lambda letter: letter[1].upper(), rule)


def number(value: int) -> str:
    return f"{value:,}"


def default(name: str, option: Option) -> set[str]:
    if name == "maxAttempts":
        return {number(DEFAULT_ATTEMPTS), "0"}
    if option.default is None:
        return {"none"} if name != "key" else set()  # needed: there is none
    if isinstance(option.default, bool):
        return {str(option.default).lower()}
    return {number(option.default) if isinstance(option.default, int) else option.default}


def test_every_option_of_a_queue_with_its_default_and_what_is_allowed(page: str) -> None:
    before, _, after = page.partition("\n## Routing\n")
    said = declared(before + after.partition("\n## ")[2])
    assert set(said) == set(OPTIONS), f"said of queues, or declared in `Rules`, but not both: {set(said) ^ set(OPTIONS)}"
    for name, option in OPTIONS.items():
        assert said[name].fixed == (not option.alterable), name
        assert said[name].bold == default(name, option), name
        if isinstance(option.allowed, tuple):
            assert tuple(said[name].plain.split(", ")) == option.allowed, name
        elif isinstance(option.allowed, range):
            low, high = option.allowed.start, option.allowed.stop - 1
            assert said[name].plain.startswith(f"{number(low)} to {number(high)}"), name
        else:
            assert said[name].plain.removeprefix("none, ") == option.allowed, name
    for type_ in TYPES:
        assert f"`--type {type_}`" in page


def test_every_option_and_type_of_an_exchange(page: str) -> None:
    said = declared(section(page, "Routing"))
    assert set(said) == set(exchange_options.OPTIONS)
    for name, allowed in exchange_options.OPTIONS.items():
        if allowed is None:
            assert (said[name].bold, said[name].plain) == ({"none"}, "none, the name of a queue or an exchange")
        else:
            assert (said[name].bold, tuple(said[name].plain.split(", "))) == ({allowed[0]}, allowed)
    assert "Types: " + ", ".join(exchange_options.TYPES).replace("direct", "**direct**") + "." in page


def test_every_outcome(page: str) -> None:
    """By the names that Spark's option has."""
    said = [row[0].strip("`") for row in rows(section(page, "How a message ends"))[1:]]
    names = [one.name.lower().replace("_", "-") for one in Outcome if one is not Outcome.NONE]
    assert sorted(said) == sorted(names) == sorted(of_spark.OUTCOMES)


def test_every_return_and_whether_it_counts(page: str) -> None:
    """C8"""
    said = {row[0].strip("`"): row[2:] for row in rows(section(page, "What comes back"))[1:]}
    options = {rule: camel(rule) for rule in COUNTS_BY_RULE.values()}
    assert said == {
        cause.name: [
            "yes" if RETURN_COUNTS_ATTEMPT[cause] else "no",
            f"`{options[COUNTS_BY_RULE[cause]]}`" if cause in COUNTS_BY_RULE else "",
            f"`{camel(LIMITED_BY_RULE[cause])}`" if cause in LIMITED_BY_RULE else "",
        ]
        for cause in Cause
    }


def test_every_reason_of_a_dead_letter(page: str) -> None:
    reasons = ", ".join(one.name.lower() for one in Reason if one is not Reason.NONE)
    assert f"`x-opt-death-reason` ({reasons})" in section(page, "Dead letters")


def test_every_name_of_a_selector(page: str) -> None:
    said = set(re.findall(r"`((?:JMS|amqp\.)\w+)`", section(page, "Selectors")))
    assert said == set(_FIELDS)


def test_the_options_of_spark_that_it_names_are_there(page: str) -> None:
    text = section(page, "Spark") + section(page, "Queues and order")
    named = set(re.findall(r"option `(\w+)`", text)) | {"operation", "minPartitions", "maxMessagesPerPartition", "states"}
    assert named <= {option.name for option in of_spark.OPTIONS}
    assert all(f"`{name}" in text for name in named)


def test_every_promise_of_a_queue_stands_in_it(page: str) -> None:
    """Q1 to Q22, C1 to C12, E1 to E4: no feature without its row."""
    missing = [
        f"{letter}{n}"
        for letter, count in (("Q", 22), ("C", 12), ("E", 4))
        for n in range(1, count + 1)
        if not re.search(rf"\b{letter}{n}\b", page)
    ]
    assert not missing


def test_its_links_lead_somewhere(page: str, repository: Path) -> None:
    for link in re.findall(r"\]\(([^)#:]+)[^)]*\)", page):
        assert (repository / "docs" / link).exists(), link
