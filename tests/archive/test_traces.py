"""U10: a message is found wherever it is: in memory, in a packed block, settled and not recorded, or recorded."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.actions import traces
from penstock.broker_core.actions.actions import Actions
from penstock.broker_core.actions.archive_reads import ArchiveReads
from penstock.broker_core.actions.callers import Caller
from penstock.broker_core.actions.histories import histories
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS
from penstock.broker_core.engine.columns.states import Cause, Outcome
from penstock.broker_core.security import ANONYMOUS, Access

from .rig import Rig


def batch(*ids: str, order: str | None = None) -> pa.RecordBatch:
    columns = {"body": pa.array([b"x"] * len(ids)), "messageId": pa.array(ids), "correlationId": pa.array([order] * len(ids))}
    return pa.record_batch({name: column for name, column in columns.items() if column.null_count < len(ids)})


def ask(rig: Rig, user: str = ANONYMOUS, **fields: Any) -> dict[str, Any]:
    service = rig.service
    service.archive = rig.recorder.url
    access = Access(rig.data / "users.json")
    caller = Caller(access, user, "here", lambda: False)
    actions = Actions(service, ArchiveReads(service), access)
    answer: dict[str, Any] = json.loads(actions.carry_out(caller, "message.trace", json.dumps(fields).encode()))
    return answer


def stays(rig: Rig, **fields: Any) -> list[tuple[int, str, bool]]:
    """Return sequence number, state, and whether it is recorded, over as many calls as it takes."""
    found: list[tuple[int, str, bool]] = []
    place = None
    while True:
        answer = ask(rig, **fields, resume=place)
        places = [stay for message in answer["messages"] for stay in message["stays"]]
        found += [(stay["sequenceNumber"], stay["state"], stay["recorded"]) for stay in places]
        place = answer["next"]
        if place is None:
            return sorted(found)


def test_a_message_is_found_in_each_state_and_in_the_table(rig: Rig) -> None:
    rig.send("q", batch("m0", "m1", "m2", "m3", order="o"), batch("other", "m", order="p"))
    rig.settle("q", 1)
    rig.record()
    rig.settle("q", 1, Outcome.REJECTED, "no")
    link = rig.service.submit(c.Subscribe("q", user="ann"))
    rig.service.submit(c.Acquire("q", link, 1))
    wanted = [(0, "archived", True), (1, "archived", False), (2, "acquired", False), (3, "available", False)]
    assert stays(rig, id="o") == wanted
    assert stays(rig, id="o", count=1) == wanted
    assert stays(rig, selector="JMSCorrelationID = 'o'") == wanted
    assert stays(rig, selector="JMSCorrelationID = 'o'", count=1) == wanted
    for number, (_, state, is_recorded) in enumerate(wanted):
        assert stays(rig, id=f"m{number}") == [(number, state, is_recorded)]
        assert stays(rig, queue="q", sequence=number) == [(number, state, is_recorded)]
    (message,) = ask(rig, id="m2")["messages"]
    assert message["where"] == "held in q (sequence number 2) by ann"
    (message,) = ask(rig, id="m1")["messages"]
    assert message["where"] == "settled in q as rejected: no"


def test_recorded_messages_are_not_compared_again(rig: Rig) -> None:
    """A block that has left memory is opened only if the table lacks some of its messages."""
    ids = [f"m{number}" for number in range(BLOCK_ROWS)]
    rig.send("q", batch(*ids), batch("last"))
    rig.settle("q", BLOCK_ROWS)
    assert rig.service.pack_blocks() == 1
    answer = ask(rig, id="m7")
    assert answer["searched"] == BLOCK_ROWS + 1
    assert [stay["recorded"] for stay in answer["messages"][0]["stays"]] == [False]
    rig.record()
    answer = ask(rig, id="m7")
    assert answer["searched"] == 1
    assert [stay["recorded"] for stay in answer["messages"][0]["stays"]] == [True]


def test_a_search_of_any_size_is_finished_by_several_calls(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(traces, "MAX_SCANNED", 1)
    rig.send("q", batch(*[f"m{number}" for number in range(BLOCK_ROWS)]), batch("wanted"))
    assert ask(rig, id="wanted")["messages"] == []
    assert stays(rig, id="wanted") == [(BLOCK_ROWS, "available", False)]


def test_without_time_the_table_is_searched_file_by_file(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    for number in range(3):
        rig.send("q", batch(f"m{number}", order="o"))
        rig.settle("q", 1)
        rig.record()
    assert len(list(Path(rig.recorder.url, "q").rglob("*.parquet"))) == 3
    expected = [(number, "archived", True) for number in range(3)]
    for limit_s in (-1.0, 5.0):
        monkeypatch.setattr(traces, "SEARCH_S", limit_s)
        for fields in ({"id": "o"}, {"selector": "JMSCorrelationID = 'o'"}):
            for count in (1, 2, 100):
                assert stays(rig, **fields, count=count) == expected
    monkeypatch.setattr(traces, "SEARCH_S", -1.0)
    first = ask(rig, id="o")
    assert (first["messages"], first["next"]["archive"]) == ([], True)
    second = ask(rig, id="o", resume=first["next"])
    assert (len(second["messages"]), second["next"]["file"]) == (1, 1)


def test_a_message_that_is_recorded_during_the_search_is_shown_once(rig: Rig) -> None:
    """The state is searched before the table."""
    rig.send("q", batch("m"))
    rig.settle("q", 1)
    (before,) = ask(rig, id="m")["messages"]
    rig.record()
    (after,) = ask(rig, id="m")["messages"]
    (both,) = histories([*before["stays"], *after["stays"]])
    assert both == after
    assert [event["event"] for event in both["events"]] == ["arrived", "settled", "recorded"]


def test_a_dead_letter_that_stayed_and_was_redriven(rig: Rig) -> None:
    """Its two ends are two rows of the table, with one sequence number."""
    rig.service.submit(c.DeclareQueue("full", options={"maxAttempts": 1}))
    rig.send("full", batch("m"))
    link = rig.service.submit(c.Subscribe("full", user="ann"))
    rows = rig.service.submit(c.Acquire("full", link, 1)).rows
    rig.service.submit(c.Release("full", link, rows, Cause.MODIFIED))
    rig.record()
    (message,) = ask(rig, id="m")["messages"]
    assert message["where"] == "dead-lettered in full: delivery_limit; last delivered to ann"
    rig.service.submit(c.Redrive("full"))
    rows = rig.service.submit(c.Acquire("full", link, 1)).rows
    rig.service.submit(c.Settle("full", link, rows))
    rig.record()
    (message,) = ask(rig, id="m")["messages"]
    names = [event["event"] for event in message["events"] if event["event"] != "failed"]
    assert names == ["arrived", "dead-lettered", "recorded", "redriven", "settled", "recorded"]
    assert message["where"] == "settled in full as accepted by ann"


def texts(rig: Rig, id_: str) -> list[tuple[bool, str]]:
    """Return the events, and whether their time is known."""
    (message,) = ask(rig, id=id_)["messages"]
    return [(event["time"] is not None, event["text"]) for event in message["events"]]


def test_a_redrive_names_its_user(rig: Rig) -> None:
    """A dead letter moves back, and another one had stayed in its queue."""
    for name, options in (("moving", {"deadLetterQueue": "q", "maxAttempts": 1}), ("staying", {"maxAttempts": 1})):
        rig.service.submit(c.DeclareQueue(name, options=options))
        rig.send(name, batch(name))
        link = rig.service.submit(c.Subscribe(name, user="ann"))
        rows = rig.service.submit(c.Acquire(name, link, 1)).rows
        rig.service.submit(c.Release(name, link, rows, Cause.MODIFIED))
        rig.service.submit(c.Redrive("q" if name == "moving" else name, user="carol"))
    rig.record()
    assert (True, "redriven from q to moving (sequence number 1) by carol") in texts(rig, "moving")
    assert texts(rig, "staying")[-2:] == [
        (True, "redriven in staying by carol"),
        (False, "waits in staying (sequence number 0)"),
    ]
    assert not any("last delivered to carol" in text for _, text in [*texts(rig, "moving"), *texts(rig, "staying")])


@pytest.mark.parametrize(
    ("rest", "expected"),
    [
        ({"outcome": "accepted", "settledTime": "2026-01-01T00:00:00.001"}, ["arrived", "settled", "recorded"]),
        ({"failures": [{"cause": "redriven", "time": "2026-01-01T00:00:00.001"}]}, ["arrived", "redriven", "recorded"]),
    ],
)
def test_events_within_a_millisecond_are_in_their_order(rest: dict[str, Any], expected: list[str]) -> None:
    """The time of an arrival is known to a microsecond, the others are rounded down to a millisecond."""
    arrived = {"queue": "q", "sequenceNumber": 0, "enqueuedTime": "2026-01-01T00:00:00.001456"}
    (message,) = histories([{**arrived, "state": "archived", "recorded": True, **rest}])
    assert [event["event"] for event in message["events"]] == expected


def test_an_unreachable_archive_is_an_error(rig: Rig) -> None:
    rig.send("q", batch("m"))
    rig.settle("q", 1)
    rig.record()
    for path in Path(rig.recorder.url, "q").rglob("*.parquet"):
        path.unlink()
    with pytest.raises(errors.ArchiveUnreachable, match="cannot be read here"):
        ask(rig, id="m")


@pytest.mark.parametrize(
    ("fields", "text"),
    [
        ({}, "by one of the fields"),
        ({"id": "m", "selector": "a = 1"}, "by one of the fields"),
        ({"sequence": 1}, "needs the field 'queue'"),
        ({"id": ""}, "1 to 4,096 bytes"),
        ({"id": "x" * 5_000}, "1 to 4,096 bytes"),
        ({"id": "m", "count": 1_001}, "1 to 1,000"),
        ({"id": "m", "resume": {"queue": 7}}, "field 'resume'"),
        ({"id": "m", "resume": {"queue": "q", "other": 7}}, "unknown field 'other'"),
    ],
)
def test_a_wrong_request_is_refused(rig: Rig, fields: dict[str, Any], text: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=text):
        ask(rig, **fields)


def test_quotes_in_an_id(rig: Rig) -> None:
    rig.send("q", batch("it's", "its"))
    assert stays(rig, id="it's") == [(0, "available", False)]
