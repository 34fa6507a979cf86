"""Rows about a broker while its archiver works: throughput of a queue with and without it."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from feeding import BATCH, QUEUE, amqp_batch_of, batch_of, enqueue_command, nbytes
from harness import Bench, Line, Stopwatch

from penstock.broker_core.archive.recorder.process import RecorderProcess
from penstock.broker_core.archive.recorder.recorder import Recorder, greeting
from penstock.broker_core.engine import commands as c
from penstock.broker_core.reading.batches import BatchRequest, record_batches
from penstock.broker_core.service.broker import BrokerService
from penstock.broker_core.service.recordings import Recordings
from penstock.broker_core.settings.keys import Settings

BACKLOG = "backlog"
SPARK, AMQP = "Spark", "AMQP clients"
#: By sender: messages of 100 bytes, recorded in some 4 s on a core of its own. Those of AMQP clients are decoded.
BACKLOG_MESSAGES = {SPARK: 8_000_000, AMQP: 1_600_000}
MAKE = {SPARK: batch_of, AMQP: amqp_batch_of}
MEASURED = 80_000  # of 1 KiB, in and out again
#: The pieces of one round: does the archiver work? A disk's speed changes by half within seconds, and after large writes such as
#: the backlog at the begin of a round. So both halves of a round are cut into pieces, which alternate.
ORDER = (True, False, False, True, False, True, True, False)
HOW = ("with the archiver", "alone")
COLUMNS = ("sequenceNumber", "body")
ROUNDS = 3  # times the usual repeats
#: The core of the archiver's process, the sender of its backlog, and the target for the broker on the first core.
CASES = (("the other core", 1, SPARK, 0.9), ("the broker's core", 0, SPARK, 0.7), ("the other core", 1, AMQP, 0.9))


class _Site:
    """A broker on the first core, and its archiver on another one or the same."""

    def __init__(self, bench: Bench, core: int, sender: str) -> None:
        self._messages = bench.count(MEASURED, BATCH) // BATCH * BATCH
        self._most = bench.count(BACKLOG_MESSAGES[sender], BATCH) // BATCH * BATCH
        settings = Settings(data=bench.folder(), fsync="always", archive_after_s=0.1)
        self.data: Path = settings.data
        self.service = BrokerService(settings)
        service = self.service
        service.state.records = True
        service.submit(c.DeclareQueue(BACKLOG), c.DeclareQueue(QUEUE, options={"archive": False}))
        host = Recordings(service.state, service.journal, service._lock, service._clock, lambda command: service.submit(command))
        child = RecorderProcess(greeting(host, settings))
        self._recorder = Recorder(host, settings, process=child)
        self._settled = enqueue_command(MAKE[sender](BATCH, 100), BACKLOG)
        self._measured = enqueue_command(batch_of(BATCH, 1024))
        # The first recording starts the process, which imports its modules.
        self._settle(1)
        while self._left():
            self._recorder.turn()
        assert child.pid is not None
        self._pid = child.pid
        for task in os.listdir(f"/proc/{self._pid}/task"):
            os.sched_setaffinity(int(task), {core})
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._record)
        self._thread.start()

    def _record(self) -> None:
        while not self._closing.wait(0.1):
            while self._recorder.turn() and not self._closing.is_set():
                pass

    def _settle(self, batches: int) -> None:
        for _ in range(batches):
            self.service.reserve_space(nbytes(self._settled))
            self.service.submit_nowait(self._settled)
        while self.service.submit(c.Purge(BACKLOG)):
            pass
        while self.service.pack_blocks():
            pass

    def _left(self) -> int:
        """Settled messages that are not recorded."""
        return sum(backlog.rows for backlog in self.service.submit(c.ListBacklogs()))

    def round(self) -> list[tuple[float, float, float]]:
        """Measure messages a second, in and out, and CPU seconds of the broker for a million messages.

        The first result is with the archiver at work, the second without it.
        """
        self._let(work=False)
        self._settle((self._most - self._left()) // BATCH)
        seconds = {True: [0.0, 0.0, 0.0], False: [0.0, 0.0, 0.0]}
        for work in ORDER:
            self._let(work=work)
            os.sync()  # the writes of one piece must not slow down the next one
            for index, spent in enumerate(self._seconds()):
                seconds[work][index] += spent
        assert self._left(), "the archiver was done before the measurement was"
        messages = self._messages * len(ORDER) / 2
        return [(messages / put, messages / out, cpu * 1e6 / messages) for put, out, cpu in (seconds[True], seconds[False])]

    def _let(self, *, work: bool) -> None:
        os.kill(self._pid, signal.SIGCONT if work else signal.SIGSTOP)

    def _seconds(self) -> tuple[float, float, float]:
        begun = time.process_time()
        with Stopwatch() as put:
            for _ in range(self._messages // BATCH):
                self.service.submit(self._measured)
        holder = self.service.submit(c.Subscribe(QUEUE))
        taken = 0
        with Stopwatch() as drained:
            while taken < self._messages:
                rows = self.service.submit(c.Acquire(QUEUE, holder, BATCH)).rows
                slices = self.service.slices(QUEUE, rows, outcomes=False)
                taken += sum(
                    batch.num_rows for batch in record_batches(self.service.journal, slices, BatchRequest(COLUMNS, QUEUE))
                )
                self.service.submit(c.Settle(QUEUE, holder, rows))
        self.service.submit(c.Unsubscribe(QUEUE, holder))
        return put.seconds, drained.seconds, time.process_time() - begun

    def close(self) -> None:
        self._let(work=True)
        self._closing.set()
        self._recorder.close()
        self._thread.join()
        self.service.close()


def archiving(bench: Bench) -> Iterator[Line]:
    before = os.sched_getaffinity(0)
    cores = sorted(before)
    for where, number, sender, target in CASES:
        if number >= len(cores):
            bench.say("there is one core: nothing can be measured with the archiver on another one")
            continue
        os.sched_setaffinity(0, {cores[0]})
        sides: list[list[tuple[float, float, float]]] = [[], []]
        site = _Site(bench, cores[number], sender)
        try:
            site.round()  # warm
            for i in range(ROUNDS * bench.repeats):
                for side, rates in zip(sides, site.round(), strict=True):
                    side.append(rates)
                pairs = zip(("in", "out", "CPU s"), sides[0][-1], sides[1][-1], strict=True)
                bench.say(
                    f"messages of {sender}, {where}, {i + 1}/{ROUNDS * bench.repeats}: "
                    + ", ".join(f"{n} {a:,.5g} against {b:,.5g}" for n, a, b in pairs)
                )
        finally:
            site.close()
            bench.remove(site.data)
            os.sched_setaffinity(0, before)
        for index, way in enumerate(("durable enqueue in process", "acquire, read and settle in process")):
            yield Line(
                "archiving",
                f"{way}, 1 KiB messages in batches of {BATCH:,}, while the archiver works on {where}"
                + (", and decodes messages of AMQP clients" if sender == AMQP else ""),
                "the same while it is stopped",
                target,
                None,
                True,
                "messages/s",
                [rates[index] for rates in sides[0]],
                [rates[index] for rates in sides[1]],
                note="fsync=always",
                more={}
                if index
                else {
                    f"broker's CPU s for a million in and out, {how}": [r[2] for r in rates]
                    for how, rates in zip(HOW, sides, strict=True)
                },
            )
