"""Lines of `penstock receive` on their way into a real pipe: while its reader is slow, when it is gone, and on a stop."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable, Iterator
from itertools import count
from types import SimpleNamespace

import pytest

from penstock.broker_core.amqp.deliveries import Delivery
from penstock.broker_core.cli import stdout
from penstock.broker_core.cli.amqp_calls import Stop

LINE = bytes(range(256)) * 100 + b"\n"  # several pages, more than a pipe of one page accepts

pytestmark = pytest.mark.timeout(30)  # a write that blocks never ends: the reader is this very thread


class Pipe:
    """A pipe as stdout; `read` takes a page out of it."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.reader, writer = os.pipe()
        self.stdout = os.fdopen(writer, "w")
        self.seen: list[bytes] = []
        self._monkeypatch = monkeypatch
        monkeypatch.setattr(stdout, "TURN_S", 0.001)

    def read(self) -> None:
        self.seen.append(os.read(self.reader, 4096))

    def write(self, stop: Stop, idle: Callable[[], object]) -> int:
        delivery = Delivery(None, 0, b"", 0, LINE, False, 0)  # type: ignore[arg-type]  # no link is asked for a line
        with self._monkeypatch.context() as here:  # pytest sets stdout for each part of a test
            here.setattr(sys, "stdout", self.stdout)
            return stdout.Lines(lambda line: line.payload, stop, idle).write([delivery])


@pytest.fixture
def pipe(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pipe]:
    made = Pipe(monkeypatch)
    yield made
    for close in (made.stdout.close, lambda: os.close(made.reader)):
        with contextlib.suppress(OSError):  # the test has closed it
            close()


def test_a_long_line_waits_for_its_reader_page_by_page_and_is_idle_meanwhile(pipe: Pipe) -> None:
    """Heartbeats also continue in the middle of a line."""
    assert pipe.write(Stop(), pipe.read) == 1
    assert b"".join(pipe.seen) == LINE
    assert len(pipe.seen) == -(-len(LINE) // 4096)


@pytest.mark.parametrize(("pages", "reads_on", "written"), [(3, True, 1), (3, False, 0), (len(LINE) // 4096, False, 1)])
def test_on_a_stop_a_line_that_is_begun_is_finished_if_somebody_reads(
    pipe: Pipe, monkeypatch: pytest.MonkeyPatch, pages: int, reads_on: bool, written: int
) -> None:
    """Its last page may still be in the pipe: the reader will have it."""
    stop = Stop()
    monkeypatch.setattr(stdout, "FINISH_S", 30.0 if reads_on else 0.05)

    def idle() -> None:
        stop.asked = stop.asked or len(pipe.seen) >= pages
        if reads_on or not stop.asked:
            pipe.read()

    assert pipe.write(stop, idle) == written
    if reads_on:
        pipe.read()
        assert b"".join(pipe.seen) == LINE


def test_on_a_stop_a_line_that_is_not_begun_is_left(pipe: Pipe) -> None:
    os.write(pipe.stdout.fileno(), b"another line\n")
    stop = Stop()
    stop.asked = True
    assert pipe.write(stop, lambda: None) == 0
    pipe.read()
    assert pipe.seen == [b"another line\n"]


def test_on_a_stop_a_slow_reader_has_so_long_for_the_rest_of_the_line(pipe: Pipe, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not for each page. Each look at the clock takes it a second."""
    stop, seconds = Stop(), count()
    monkeypatch.setattr(stdout, "time", SimpleNamespace(monotonic=lambda: float(next(seconds))))

    def idle() -> None:
        stop.asked = True
        pipe.read()

    assert pipe.write(stop, idle) == 0
    assert len(pipe.seen) < len(LINE) // 4096


def test_a_reader_that_leaves_in_the_middle_of_a_line_has_not_read_it(pipe: Pipe) -> None:
    assert pipe.write(Stop(), lambda: os.close(pipe.reader)) == 0
