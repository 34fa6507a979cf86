"""D2 D4: the cleaner and the archiver at one journal: every settled message is a row once, and the journal stays small."""

from __future__ import annotations

import threading
from collections.abc import Callable
from random import Random

import pytest

from penstock.broker_core.archive.write.rows import RecordingContent
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS
from penstock.broker_core.service.cleaning import SLACK, SPARE_SEGMENTS
from penstock.broker_core.service.recordings import Recordings

from ..flight.helpers import numbered
from .rig import Died, Rig, numbers, sequences

MIB = 1 << 20
OPTIONS = {"segment_bytes": MIB, "clean_bandwidth": 1 << 40, "archive_file_bytes": MIB}
STEPS = ("open", "write", "commit", "answer")


def through(rig: Rig, count: int = 100) -> None:
    """So many messages of 7,000 bytes that are not recorded."""
    rig.send("beside", numbered(count, 7000))
    rig.settle("beside", count)


def prepared(make: Callable[..., Rig]) -> Rig:
    """Return a block of small messages that has left memory, and some more, among messages that are no longer needed."""
    rig = make(**OPTIONS)
    rig.service.submit(c.DeclareQueue("q"), c.DeclareQueue("beside", "fifo", {"archive": False}))
    for _ in range(33):
        rig.send("q", numbered(BLOCK_ROWS // 32, 8))
        rig.settle("q", BLOCK_ROWS // 32)
        through(rig)
    rig.send("q", numbered(7, 100))
    assert rig.service.pack_blocks() == 1
    return rig


def is_small(rig: Rig) -> bool:
    size = sum(segment.bytes for segment in rig.service.journal.segments())
    return size <= SLACK * rig.service.cleaner.usage().total + SPARE_SEGMENTS * MIB


def cleaned(rig: Rig) -> None:
    for _ in range(10):
        if not rig.service.cleaner.clean():
            return
    raise AssertionError("the cleaner finds no end")


@pytest.mark.parametrize("step", STEPS)
def test_a_pass_during_which_the_journal_is_cleaned_has_all_of_its_rows(make_rig: Callable[..., Rig], step: str) -> None:
    """D2 D4: the rows of a pass, in memory and out of it, are copied and their old segments dropped while it is written."""
    rig = prepared(make_rig)
    moved: list[int] = []

    def clean(name: str) -> None:
        if name == step:
            moved.append(rig.service.cleaner.clean())

    rig.step = clean
    rig.record()
    assert moved[0] > 5 * MIB
    assert sequences(rig.table()) == numbers(range(33 * BLOCK_ROWS // 32))
    assert {len(body) for body in rig.table()["body"].to_pylist()} == {8}
    cleaned(rig)
    assert is_small(rig)
    assert rig.service.submit(c.Stat("q"))[0]["available"] == 7


def test_a_journal_that_is_cleaned_while_a_pass_is_put_together(
    make_rig: Callable[..., Rig], monkeypatch: pytest.MonkeyPatch
) -> None:
    """D2 D4: between the copy of its columns and the list of the journal's segments, all that it points at is copied ahead."""
    rig, moved = prepared(make_rig), list[int]()
    listed = Recordings.segments

    def clean(host: Recordings, content: RecordingContent) -> list[tuple[str, int, int]]:
        moved.append(rig.service.cleaner.clean())
        return listed(host, content)

    monkeypatch.setattr(Recordings, "segments", clean)
    rig.record()
    assert moved[0] > 5 * MIB
    assert sequences(rig.table()) == numbers(range(33 * BLOCK_ROWS // 32))
    assert {len(body) for body in rig.table()["body"].to_pylist()} == {8}


@pytest.mark.parametrize("step", STEPS)
def test_an_archiver_that_died_records_the_same_rows_after_a_cleaning_and_a_restart(
    make_rig: Callable[..., Rig], step: str
) -> None:
    rig = prepared(make_rig)

    def die(name: str) -> None:
        if name == step:
            raise Died

    rig.step = die
    rig.recorder.turn()
    cleaned(rig)
    assert is_small(rig)
    rig.step = lambda name: None
    rig.reopen()
    rig.record()
    assert sequences(rig.table()) == numbers(range(33 * BLOCK_ROWS // 32))
    cleaned(rig)
    assert is_small(rig)


@pytest.mark.parametrize("seed", range(4))
def test_both_at_work_while_messages_come_and_go(make_rig: Callable[..., Rig], seed: int) -> None:
    """D2 D4: cleaning in a thread of its own; at the end each message that is settled is a row, and the others wait."""
    random, rig = Random(seed), make_rig(**OPTIONS)
    rig.service.submit(c.DeclareQueue("q"), c.DeclareQueue("beside", "fifo", {"archive": False}))
    done, failed = threading.Event(), list[BaseException]()

    def clean() -> None:
        try:
            while not done.wait(0.01):
                rig.service.cleaner.clean()
        except BaseException as error:
            failed.append(error)

    thread = threading.Thread(target=clean)
    thread.start()
    try:
        settled = 0
        for _ in range(40):
            rig.send("q", numbered(random.randint(1, 300), random.choice([10, 900])))
            waiting = rig.service.state.queues["q"].live
            settled += rig.settle("q", random.randint(1, waiting)).count
            through(rig, random.randint(1, 80))
            if random.random() < 0.3:
                rig.record(random.randint(1, 3))
        rig.record()
    finally:
        done.set()
        thread.join()
    assert not failed
    assert sequences(rig.table()) == numbers(range(settled))
    cleaned(rig)
    assert is_small(rig)
