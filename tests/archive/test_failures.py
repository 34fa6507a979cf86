"""U10: the archive has the last failed deliveries of a message, and its history shows them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS, RowSet
from penstock.broker_core.engine.columns.states import Cause, Outcome

from ..flight.helpers import numbered
from .rig import STEPS, Died, Rig
from .test_traces import ask, batch, texts

Command = Callable[[int, RowSet], c.Command[Any]]


def reject(error: str) -> Command:
    return lambda link, rows: c.Settle("retried", link, rows, Outcome.REJECTED, error)


def lose(link: int, rows: RowSet) -> c.Command[Any]:
    return c.Release("retried", link, rows, Cause.LINK_LOST)


def accept(link: int, rows: RowSet) -> c.Command[Any]:
    return c.Settle("retried", link, rows)


def deliver(rig: Rig, user: str | None, command: Command, count: int = 1) -> None:
    link = rig.service.submit(c.Subscribe("retried", user=user))
    rig.service.submit(command(link, rig.service.submit(c.Acquire("retried", link, count)).rows), c.Unsubscribe("retried", link))


@pytest.fixture
def retried(rig: Rig) -> Rig:
    """With a queue in which rejected messages return."""
    rig.service.submit(c.DeclareQueue("retried", options={"rejected": "return"}))
    return rig


def recorded(rig: Rig) -> list[Any]:
    """Return cause, holder and error of each delivery of each row."""
    columns = [None if text is None else json.loads(text) for text in rig.table("retried")["failures"].to_pylist()]
    return [some and [(each["cause"], each.get("holder"), each.get("error")) for each in some] for some in columns]


def test_a_history_has_the_failed_deliveries_before_and_after_the_end(retried: Rig) -> None:
    """Also after a restart, and in the archive."""
    retried.send("retried", batch("m"))
    deliver(retried, "ann", reject("no such product"))
    arrived, waits = (True, "arrived in retried (sequence number 0)"), (False, "waits in retried (sequence number 0)")
    first = (True, "delivered from retried to ann without success: rejected: no such product")
    assert texts(retried, "m") == [arrived, first, waits]
    deliver(retried, None, lose)
    second = (True, "delivered from retried without success: the connection was lost")
    settled = (True, "settled in retried as accepted by eve")
    for prepare, end in (
        (retried.reopen, waits),
        (lambda: deliver(retried, "eve", accept), settled),
        (retried.reopen, settled),
        (retried.record, settled),
        (retried.reopen, settled),
    ):
        prepare()
        assert [text for text in texts(retried, "m") if not text[1].startswith("recorded")] == [arrived, first, second, end]
    (message,) = ask(retried, id="m")["messages"]
    times = [event["time"] for event in message["events"] if event["time"] is not None]
    assert times == sorted(times)
    (row,) = retried.table("retried").to_pylist()
    assert (row["outcome"], row["error"], row["holder"], row["deliveryCount"]) == ("accepted", None, "eve", 2)
    assert recorded(retried) == [[("rejected", "ann", "no such product"), ("link lost", None, None)]]


def test_only_the_last_deliveries_are_known(retried: Rig) -> None:
    retried.send("retried", batch("m"))
    for number in range(5):
        deliver(retried, "ann", reject(f"error {number}"))
    deliver(retried, "ann", accept)
    for prepare in (lambda: None, retried.record):
        prepare()
        failed = [text for _, text in texts(retried, "m") if "without success" in text]
        others = "2 other deliveries from retried without success"
        assert failed == [others, *(f"delivered from retried to ann without success: rejected: error {n}" for n in (2, 3, 4))]


def test_a_dead_letter(rig: Rig) -> None:
    """Its failed deliveries are in the archive of the queue that it came from."""
    rig.service.submit(c.DeclareQueue("retried", options={"rejected": "return", "maxAttempts": 2, "deadLetterQueue": "q"}))
    rig.send("retried", batch("m"))
    for user, command in (("ann", lose), ("bob", reject("no"))):
        deliver(rig, user, command)
    rig.record()
    assert recorded(rig) == [[("link lost", "ann", None), ("rejected", "bob", "no")]]
    assert texts(rig, "m") == [
        (True, "arrived in retried (sequence number 0)"),
        (True, "delivered from retried to ann without success: the connection was lost"),
        (True, "delivered from retried to bob without success: rejected: no"),
        (True, "dead-lettered to q (sequence number 0): delivery_limit: no; last delivered to bob"),
        (False, "recorded in the archive of retried"),
        (False, "waits in q (sequence number 0)"),
    ]


def test_the_user_of_a_redrive_is_known_after_the_end(rig: Rig) -> None:
    rig.service.submit(c.DeclareQueue("retried", options={"maxAttempts": 1}))
    rig.send("retried", batch("m"))
    deliver(rig, "ann", lose)
    rig.service.submit(c.Redrive("retried", user="carol"))
    deliver(rig, "bob", accept)
    rig.record()
    assert recorded(rig) == [[("redriven", "carol", None)]]
    assert (True, "redriven in retried by carol") in texts(rig, "m")


def test_a_full_block_keeps_them_and_costs_nothing_without_them(retried: Rig) -> None:
    """In memory, and when it has left memory before it is recorded; also in an archive that is off."""
    retried.send("retried", numbered(BLOCK_ROWS - 1), batch("m"))
    deliver(retried, "ann", accept, BLOCK_ROWS - 1)
    deliver(retried, "ann", reject("no"))
    deliver(retried, "ann", accept)
    retried.service.pack_blocks()
    assert not retried.service.state.queues["retried"].blocks
    expected = (True, "delivered from retried to ann without success: rejected: no")
    assert expected in texts(retried, "m")
    retried.reopen()
    retried.record()
    assert recorded(retried) == [None] * (BLOCK_ROWS - 1) + [[("rejected", "ann", "no")]]
    assert expected in texts(retried, "m")
    for path in Path(retried.recorder.url, "retried").glob("day=*/*.parquet"):
        with pq.ParquetFile(path) as file:
            names = file.schema_arrow.names
            sizes = [file.metadata.row_group(0).column(index).total_compressed_size for index in range(names.index("message"))]
        assert sizes[names.index("failures")] < 500


def test_messages_that_fail_together_share_their_text(retried: Rig) -> None:
    retried.send("retried", numbered(1000))
    deliver(retried, "ann", reject("no"), 1000)
    deliver(retried, "bob", lose, 10)
    deliver(retried, "ann", accept, 1000)
    retried.record()
    both = [("rejected", "ann", "no"), ("link lost", "bob", None)]
    assert recorded(retried) == [both] * 10 + [both[:1]] * 990
    assert len(set(retried.table("retried")["failures"].to_pylist())) == 2


@pytest.mark.parametrize("step", STEPS)
def test_an_archiver_that_dies_at_any_step(retried: Rig, step: str) -> None:
    retried.send("retried", batch("m", "n"))
    deliver(retried, "ann", reject("no"))
    deliver(retried, "ann", accept, 2)

    def die(name: str) -> None:
        if name == step:
            retried.step = lambda name: None
            raise Died

    retried.step = die
    retried.record()
    retried.reopen()
    retried.record()
    assert recorded(retried) == [[("rejected", "ann", "no")], None]
