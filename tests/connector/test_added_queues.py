"""C3: queues are added to a query under its checkpoint, also if it read a single one: the reader's methods in Spark's order."""

from __future__ import annotations

import json
import random
from collections import Counter
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.broker_core import errors
from penstock.connector.stream.reader import StreamReader

from .helpers import INITIAL, LIMIT
from .test_several import Queues
from .test_several import queues as queues  # the fixture


def read(queues: Queues, reader: StreamReader, start: dict[str, Any]) -> tuple[dict[str, Any], list[tuple[str, int]]]:
    end = reader.latestOffset(start, LIMIT)
    return end, queues.read(reader, start, end)


def leases(queues: Queues) -> set[str]:
    return set(queues.leases())


@pytest.mark.parametrize("lease", ["me", None])
@pytest.mark.parametrize("finished", ["committed", "read", "planned", "offered"])
def test_one_queue_becomes_two_and_three_whatever_its_last_batch_was(queues: Queues, lease: str | None, finished: str) -> None:
    """The unfinished batch of the one queue comes first, as it was."""
    options = {} if lease is None else {"lease": lease}
    make = lambda letters: queues.reader(letters, **options) if lease else _unnamed(queues, letters)  # noqa: E731
    queues.send("a", 3)
    before = make("a")
    first, rows = read(queues, before, INITIAL)
    assert list(first) == ["v", "kind", "broker", "lease", "run", "rotation", "batches", "signs", "firstQueue"]
    assert rows == [("a", 0), ("a", 1), ("a", 2)]
    queues.send("a", 2)
    queues.send("b", 2)
    second = before.latestOffset(first, LIMIT)
    assert second["firstQueue"] == queues.prefix + "a"
    if finished in ("read", "committed"):
        assert queues.read(before, first, second) == [("a", 3), ("a", 4)]
    elif finished == "planned":
        assert before.partitions(first, second)
    two = make("ba")
    if finished == "offered":  # Spark had not written the offset: it asks again
        again = two.latestOffset(first, LIMIT)
        assert (again["batches"], again["rotation"]) == ({queues.prefix + "a": 2}, 2)
        assert queues.read(two, first, again) == [("a", 3), ("a", 4)]
        second = again
    elif finished != "committed":  # Spark plans the batch of its last offset again
        assert queues.read(two, first, second) == [("a", 3), ("a", 4)]
    third, rows = read(queues, two, second)
    assert rows == [("b", 0), ("b", 1)]
    assert third["firstQueue"] == queues.prefix + "a"
    queues.send("c", 1)
    queues.send("a", 1)
    three = make("abc")
    assert queues.read(three, second, third) == [("b", 0), ("b", 1)]
    fourth, rows = read(queues, three, third)
    assert sorted(rows) == [("a", 5), ("c", 0)]
    assert json.dumps(three.latestOffset(fourth, LIMIT)) == json.dumps(fourth)  # idle: the same text
    assert queues.counts() == {"a": (0, 0, 6), "b": (0, 0, 2), "c": (0, 0, 1)}
    name = first["lease"].removeprefix(queues.prefix)
    assert leases(queues) == {name, f"{name}/{queues.prefix}b", f"{name}/{queues.prefix}c"}


def _unnamed(queues: Queues, letters: str) -> StreamReader:
    from penstock.connector.options import Options

    from .test_several import SCHEMA

    names = ", ".join(queues.prefix + letter for letter in letters)
    queues.readers.append(StreamReader(Options({"url": queues.broker.url, "queue": names}), SCHEMA))
    return queues.readers[-1]


def test_an_idle_query_keeps_the_text_of_the_offset_of_its_one_queue(queues: Queues) -> None:
    queues.send("a", 1)
    first, _ = read(queues, queues.reader("a"), INITIAL)
    two = queues.reader("ab")
    assert json.dumps(two.latestOffset(first, LIMIT)) == json.dumps(first)
    two.commit(first)
    assert two.partitions(first, first) == []
    assert queues.counts()["a"] == (0, 0, 1)


def test_the_planner_of_the_one_queue_is_refused_once_another_has_two(queues: Queues) -> None:
    queues.send("a", 1)
    alone = queues.reader("a")
    first, _ = read(queues, alone, INITIAL)
    two = queues.reader("ab")
    assert two.latestOffset(first, LIMIT) == first
    with pytest.raises(errors.Fenced):
        alone.latestOffset(first, LIMIT)


def test_the_first_queue_cannot_be_exchanged_or_taken_away(queues: Queues) -> None:
    for letter in "abc":
        queues.send(letter, 1)
    first, _ = read(queues, queues.reader("a"), INITIAL)
    with pytest.raises(errors.WrongOffset, match=r"belongs to queue '.*a', which.*put it back"):
        queues.reader("bc").latestOffset(first, LIMIT)
    with pytest.raises(errors.WrongOffset, match=r"belongs to queue '.*a', which.*put it back"):
        queues.reader("b").latestOffset(first, LIMIT)
    second, _ = read(queues, queues.reader("ab"), first)
    with pytest.raises(errors.WrongOffset, match=r"belongs to queue '.*b', which.*put it back"):
        queues.reader("a").latestOffset(second, LIMIT)
    with pytest.raises(errors.WrongOffset, match=r"belongs to lease '.*', but the option lease is"):
        queues.reader("ab", lease="another").latestOffset(first, LIMIT)


@pytest.mark.parametrize("seed", range(3))
def test_exactly_once_whenever_the_planner_dies_and_queues_are_added(queues: Queues, seed: int) -> None:
    """As Spark has it: a batch's end is logged before it runs, and a logged batch without a commit runs again; the sink keeps one
    copy of each batch. Each start of a planner may name more queues."""
    dice = random.Random(seed)
    log: list[dict[str, Any]] = [INITIAL]
    table: dict[int, list[tuple[str, int]]] = {}
    sent: Counter[str] = Counter()
    letters = "b"

    def started() -> StreamReader:
        nonlocal letters
        if len(letters) < 3 and dice.random() < 0.2:
            letters += next(letter for letter in "acb" if letter not in letters)
        return queues.reader(letters, maxMessagesPerTrigger="7")

    reader = started()
    for step in range(120):
        if step < 60:
            letter = dice.choice("abc")
            queues.send(letter, count := dice.randint(1, 5))
            sent[letter] += count
        elif step == 60:
            letters = "bac"
            reader = started()
        death = dice.choice(["offered", "logged", "read", "none"]) if step < 60 else "none"
        if len(log) - 1 not in table and len(log) > 1:
            end = log[-1]  # it runs again
        else:
            end = reader.latestOffset(log[-1], ReadAllAvailable())
            if death == "offered":
                reader = started()
                continue
            if end == log[-1]:
                if step > 60:
                    break
                continue
            log.append(end)
        if death == "logged":
            reader = started()
            continue
        rows = queues.read(reader, log[-2], end)
        if death == "read":
            reader = started()
            assert queues.read(reader, log[-2], end) == rows, f"seed {seed}"
        table[len(log) - 1] = rows
        if dice.random() < 0.5:
            reader.commit(end)
    delivered = sorted(row for rows in table.values() for row in rows)
    assert delivered == sorted((letter, i) for letter, count in sent.items() for i in range(count)), f"seed {seed}"
    assert queues.counts() == {letter: (0, 0, sent[letter]) for letter in "abc"}


@pytest.mark.parametrize("letter", "ab")
def test_a_queue_of_several_that_was_declared_again_is_named(queues: Queues, letter: str) -> None:
    for name in "ab":
        queues.send(name, 1)
    reader = queues.reader("ab")
    first, _ = read(queues, reader, INITIAL)
    queues.client.call("queue.delete", queue=queues.prefix + letter, force=True)
    queues.declare(letter)
    with pytest.raises((errors.WrongOffset, errors.Fenced), match="was deleted"):
        reader.latestOffset(first, LIMIT)
    with pytest.raises(errors.WrongOffset, match=rf"queue '.*{letter}' has no lease .* the queue was deleted and declared again"):
        queues.reader("ab").latestOffset(first, LIMIT)
