"""docs/spark.md lists the connector's options with their places and defaults, columns with their types, and errors."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from penstock import broker_core, connector
from penstock.broker_core.messages.columns import DEFAULT_COLUMNS
from penstock.connector.options import OPTIONS, OUTCOMES, READ, REPLAY, STREAM, WRITE, Option, Options
from penstock.connector.schema import READ_ONLY, TYPES

from .pages import rows, section

#: Names of places in the table of options.
PLACES = {STREAM: "stream", REPLAY: "replay", READ: "batch", WRITE: "write"}
#: Calls of Spark in the examples: where, and the options of one line.
CALL = re.compile(r"(spark\.readStream|spark\.read|\.write)\b[^\n]*?\.options\(([^\n]*?)\)\.")
#: Names in examples with their values.
NAMES: dict[str, Any] = {
    "large": "amount > 1000",
    "secure": {},
    "broker": {},
    "day": {},
    "once": {},
    "window": {},
    "own.url": "amqp://h",
}


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "spark.md").read_text()


def default(option: Option) -> set[str]:
    """Texts that the table may have for an option's default."""
    if option.default is None:
        return {"none", "required", "required to read", "no limit", "never", "any", "by place", "a random name"} | {
            "the first",
            "the last",
            "the system's",
        }
    if isinstance(option.default, bool):
        return {str(option.default).lower()}
    return {f"{option.default:,}"} if isinstance(option.default, int) else {"".join(option.default)}


def test_every_option_with_its_places_and_default(page: str) -> None:
    entries = {re.findall(r"`(\w+)`", name)[0]: (places, value) for name, places, value, _ in rows(section(page, "Options"))[1:]}
    assert set(entries) == {option.name for option in OPTIONS}
    for option in OPTIONS:
        places, value = entries[option.name]
        assert places == ("all" if len(option.places) == 4 else ", ".join(PLACES[place] for place in option.places)), option.name
        assert value in default(option), option.name


def test_every_option_has_a_heading_and_an_example(page: str) -> None:
    options = page.partition("\n## Options\n")[2].partition("\n## Columns\n")[0]
    headings = re.findall(r"^### (.+)$", options, re.MULTILINE)
    assert sorted(name for heading in headings for name in heading.split(", ")) == sorted(option.name for option in OPTIONS)
    for heading in headings:
        text = section(page, heading)
        example = "".join(re.findall(r"```python\n(.*?)```", text, re.DOTALL))
        for name in heading.split(", "):
            assert name == "checkpointLocation" or re.search(rf"\b{name}\b", example), name
    assert ", ".join(OUTCOMES) in section(page, "outcome").replace("\n", " ")


def test_the_examples_use_options_where_they_have_a_meaning(page: str) -> None:
    count = 0
    for call, arguments in CALL.findall(page):
        place = {"spark.readStream": STREAM, "spark.read": READ, ".write": WRITE}[call]
        options = {"url": "grpc://127.0.0.1:8815", **options_of(arguments)}
        place = REPLAY if options.get("mode") == "replay" else place
        Options({name: str(value) for name, value in options.items()}).check_for(place)
        count += 1
    assert count > 20


def options_of(arguments: str) -> dict[str, Any]:
    """The options that a call gives, without a login and its files, which are looked for."""
    call = ast.parse(f"f({arguments})", mode="eval").body
    assert isinstance(call, ast.Call)
    keywords: dict[str, Any] = {}
    for keyword in call.keywords:
        value = NAMES[ast.unparse(keyword.value)] if ast.unparse(keyword.value) in NAMES else ast.literal_eval(keyword.value)
        keywords.update({keyword.arg: value} if keyword.arg else value)
    return {name: value for name, value in keywords.items() if name not in ("userName", "password") and not name.endswith("File")}


def test_every_column_with_its_type_and_where_it_is(page: str) -> None:
    entries = {name.strip("`"): more for name, *more in rows(section(page, "Columns"))[1:]}
    assert list(entries) == list(TYPES)
    for name, (type_, read, written) in entries.items():
        assert type_ == TYPES[name].simpleString(), name
        assert read.startswith("always") == (name in DEFAULT_COLUMNS), name
        assert (read == "no") == (name in ("ttl", "deliveryTime")), name
        ends = ("state", "outcome", "settledTime", "error", "holder", "failures", "lockedUntil")
        assert read.endswith("batch only") == (name in ends), name
        assert (written in ("ignored", "with `operation=settle`")) == (name in READ_ONLY), name


def test_the_errors_that_it_explains_are_there(page: str) -> None:
    texts = [text for package in (broker_core, connector) for text in texts_of(Path(package.__file__ or "").parent)]
    for fragment, *_ in rows(section(page, "Errors"))[1:]:
        assert any(fragment.strip("`") in text for text in texts), fragment


def texts_of(package: Path) -> Iterator[str]:
    """Return every text in the source, with texts of several lines joined; `…` replaces the fields."""
    for file in package.rglob("*.py"):
        for node in ast.walk(ast.parse(file.read_text())):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_the_packages_for_s3_are_those_of_the_tests(page: str, repository: Path) -> None:
    """In the version of Spark's Hadoop."""
    pom = (repository / "tests" / "clients" / "hadoop_aws" / "pom.xml").read_text()
    parts = r"<groupId>(\S+)</groupId>\s*<artifactId>(\S+)</artifactId>\s*<version>(\S+)</version>"
    tested = {":".join(match) for match in re.findall(parts, pom.partition("<dependencies>")[2].partition("</dependencies>")[0])}
    documented = {cells[1].strip("`") for cells in rows(section(page, "Read again: the archive")) if len(cells) == 2}
    assert tested == {text for text in documented if text.count(":") == 2}
    jars = Path(pyspark.__file__).parent / "jars"
    assert {f"org.apache.hadoop:hadoop-aws:{path.stem.split('-')[-1]}" for path in jars.glob("hadoop-client-api-*.jar")} <= tested
