"""kill -9 of the broker under programs with the vendor's Python SDK, with ledgers outside of the broker.

No confirmed message is lost, and no completed message comes again. A step without an answer may be done or not, and both are
accepted.

- Each session keeps its order, and its state is the last confirmed one.
- No scheduled message comes twice, before its time, or after a confirmed cancellation. A cancellation before its time succeeds.
- A deferred message comes only by its sequence number.
"""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from threading import Event
from typing import Any

from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .conftest import command_or_skip
from .driving import Program, Refused
from .service_bus import SETTINGS, connection_string, unsettled
from .test_service_bus_sessions import program

SEED = int(os.environ.get("PENSTOCK_TORTURE_SEED", "20261129"))  # another one with each `./dev torture`
CYCLES = 12 if "PENSTOCK_TORTURE_SEED" in os.environ else 1
SESSIONS = [f"session {number}" for number in range(6)]


class Ledger:
    """The confirmed and the possible steps of each session. A message's body is its number in the session."""

    def __init__(self) -> None:
        self.sent = dict.fromkeys(SESSIONS, 0)
        self.next = dict.fromkeys(SESSIONS, 0)  # the first message that is not certainly completed
        self.maybe: dict[str, int] = {}  # a message whose completion had no answer
        self.states: dict[str, set[str | None]] = {session: {None} for session in SESSIONS}
        self.completed = 0

    def add(self, kind: str, session: str, body: str | None) -> None:
        if kind == "state":
            assert body in self.states[session], f"{session} has the state {body}, not one of {self.states[session]}"
            self.states[session] = {body}
        elif kind == "sets":
            number, maybe = int(body or ""), self.maybe.pop(session, None)
            if number != self.next[session]:
                assert (maybe, number) == (self.next[session], self.next[session] + 1), f"{session} delivers {body}"
                self.next[session] = number
            self.states[session] = {*self.states[session], body}
        elif kind == "set":
            self.states[session] = {body}
        elif kind == "completes":
            self.maybe[session] = int(body or "")
        elif kind == "completed":
            del self.maybe[session]
            self.next[session] += 1
            self.completed += 1


def test_sessions_survive_kills_of_the_broker(tmp_path: Path) -> None:
    source, ledger = Random(SEED), Ledger()
    print(f"seed {SEED}")
    with Broker(tmp_path / "data", listeners=[{"port": 0, "dialect": "service-bus"}]) as broker:
        with Client(broker.url) as client:
            client.call("queue.declare", queue="q", options={"groups": "held", "lockTimeout": 60_000, "maxAttempts": 0})
        for cycle in range(CYCLES + 1):
            with program() as sender, program() as one, program() as two:
                for each in (sender, one, two):
                    each.do("open", connection=connection_string(broker))
                last = cycle == CYCLES
                _send(sender, ledger, source, 5 if last else 40)
                for worker in (one, two):
                    worker.start("work", from_="q")
                if not last:
                    _await_settled(broker, ledger.completed + source.randint(5, 25))
                    broker.kill()
                # A session has one receiver at a time, so the steps of two workers are in the order of their completions.
                steps = [worker.finish()["steps"] for worker in (one, two)]
                for session in SESSIONS:
                    _add(ledger, [[step for step in several if step[1] == session] for several in steps])
            if not last:
                broker.start()
        with Client(broker.url) as client:
            assert unsettled(client, "q") == {}
    maybe = {session: number for session, number in ledger.maybe.items() if number == ledger.next[session]}
    assert {session: next_ + (session in maybe) for session, next_ in ledger.next.items()} == ledger.sent


def _await_settled(broker: Broker, count: int) -> None:
    with Client(broker.url) as client:
        until(lambda: client.call("queue.stat", queue="q")["archived"] >= count, f"{count} messages are settled")


def _send(sender: Program, ledger: Ledger, source: Random, count: int) -> None:
    for _ in range(count):
        session = source.choice(SESSIONS)
        try:
            sender.do("send", to="q", messages=[{"session_id": session, "body": f"{ledger.sent[session]}"}])
        except Refused as refused:
            raise AssertionError("the broker is alive") from refused
        ledger.sent[session] += 1


def _add(ledger: Ledger, several: list[list[list[str]]]) -> None:
    """Add the steps of one session by several workers. Each accept begins a part, which its messages put in order."""
    parts: list[list[list[str]]] = []
    for steps in several:
        for step in steps:
            if step[0] == "state":
                parts.append([])
            parts[-1].append(step)

    def first(part: list[list[str]]) -> tuple[int, int]:
        numbers = [int(body) for kind, _, body in part if kind == "sets"]
        state = int(part[0][2]) if part[0][2] is not None else -1
        return state, numbers[0] if numbers else 1 << 30

    for part in sorted(parts, key=first):
        for kind, session, body in part:
            ledger.add(kind, session, body)


# --- scheduled and deferred messages

SOON_MS, LATE_MS = 500, 3_600_000  # messages are due within half a second, or in an hour
SCHEDULED, CANCELLED, DEFERRED, COMPLETED = "scheduled", "cancelled", "deferred", "completed"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Fate:
    """The steps of one message: done ones, and possible ones, which had no answer."""

    body: str
    due: int
    number: int | None = None
    done: set[str] = field(default_factory=set)
    maybe: set[str] = field(default_factory=set)

    def confirm(self, step: str) -> None:
        self.maybe.discard(step)
        self.done.add(step)
        assert CANCELLED not in self.done or self.done <= {SCHEDULED, CANCELLED}, f"{self} was cancelled"

    def came(self, number: int) -> None:
        """Note that it exists, so it was neither cancelled nor completed."""
        assert not self.done & {CANCELLED, COMPLETED}, f"{self} comes again"
        self.check_number(number)
        self.confirm(SCHEDULED)
        self.maybe.clear()

    def check_number(self, number: int) -> None:
        assert self.number in (None, number), f"{self} is there again as {number}"
        self.number = number


class Fates:
    """All messages by body. Two threads add to them."""

    def __init__(self) -> None:
        self._fates: dict[str, Fate] = {}
        self.answers = 0

    def plan(self, count: int, due: int) -> list[Fate]:
        fates = [Fate(f"{len(self._fates) + index}", due) for index in range(count)]
        self._fates |= {fate.body: fate for fate in fates}
        return fates

    def of(self, message: dict[str, Any]) -> Fate:
        return self._fates[message["body"]]

    def all(self, is_wanted: Callable[[Fate], bool] = lambda fate: True) -> list[Fate]:
        return [fate for fate in [*self._fates.values()] if is_wanted(fate)]

    def deferred(self) -> list[Fate]:
        return self.all(lambda fate: DEFERRED in fate.done and COMPLETED not in fate.done)


class Worker:
    """A program that takes steps with messages of the queue, and notes each before and after."""

    def __init__(self, program: Program, fates: Fates, source: Random) -> None:
        self.program, self.fates, self.source = program, fates, source

    def _chance(self, probability: float) -> bool:
        return self.source.random() < probability

    def _sample(self, fates: list[Fate], most: int) -> list[Fate]:
        return self.source.sample(fates, min(len(fates), most))

    def _step(self, step: str, fates: list[Fate], do: str, **arguments: Any) -> dict[str, Any]:
        """Carry out a step. Raises Refused, and then it may be done."""
        for fate in fates:
            fate.maybe.add(step)
        answer = self.program.do(do, **arguments)
        for fate in fates:
            fate.confirm(step)
        self.fates.answers += 1
        return answer

    # --- the sender

    def schedule_and_cancel(self, rounds: Iterable[int]) -> None:
        for _ in rounds:
            due = now_ms() + (LATE_MS if self._chance(0.4) else self.source.randrange(SOON_MS))
            self._schedule(self.fates.plan(self.source.choice((1, 1, 4)), due), due)
            waiting = self.fates.all(lambda fate: fate.number is not None and fate.done == {SCHEDULED} and not fate.maybe)
            if waiting and self._chance(0.5):
                self.cancel(self._sample(waiting, self.source.choice((1, 1, 3))))

    def _schedule(self, fates: list[Fate], due: int) -> None:
        messages: list[dict[str, Any]] = [{"body": fate.body} for fate in fates]
        if self._chance(0.2):  # the answer has no numbers
            timed = [{**message, "scheduled_enqueue_time_utc": due / 1000} for message in messages]
            self._step(SCHEDULED, fates, "send", to="q", messages=timed, together=True)
            return
        answer = self._step(SCHEDULED, fates, "schedule", to="q", messages=messages, at=due / 1000)
        for fate, number in zip(fates, answer["numbers"], strict=True):
            fate.check_number(number)

    def cancel(self, fates: list[Fate]) -> None:
        try:
            self._step(CANCELLED, fates, "cancel", to="q", numbers=[fate.number for fate in fates])
        except Refused as refused:
            if refused.level != "MessageNotFoundError":
                raise
            if not any(now_ms() >= fate.due for fate in fates):
                raise AssertionError(f"{fates} wait and were not cancelled") from refused
            for fate in fates:
                fate.maybe.discard(CANCELLED)

    # --- the receiver

    def receive_and_defer(self, rounds: Iterable[int]) -> None:
        self.program.do("peek", from_="q")  # opens the link, for which a receive with a short wait may have no time
        self.ask_for_doubtful()
        for _ in rounds:
            for message in self.program.receive("q", 3, wait=0.1):
                self._note(message)
                self._settle(message, DEFERRED if self._chance(0.4) else COMPLETED)
            deferred = self.fates.deferred()
            if deferred and self._chance(0.5):
                for message in self._ask(self._sample(deferred, 2)):
                    self._settle(message, DEFERRED if self._chance(0.3) else COMPLETED)

    def _note(self, message: dict[str, Any]) -> None:
        fate = self.fates.of(message)
        assert now_ms() >= fate.due, f"{fate} comes before its time"
        assert DEFERRED not in fate.done, f"{fate} comes without its number"
        fate.came(message["sequence_number"])

    def _settle(self, message: dict[str, Any], step: str) -> None:
        how = "defer" if step == DEFERRED else "complete"
        self._step(step, [self.fates.of(message)], "settle", token=message["token"], how=how)

    def _ask(self, fates: list[Fate]) -> list[dict[str, Any]]:
        """Receive deferred messages. Raises Refused if one is not deferred."""
        answer = self.program.do("receive_deferred", from_="q", numbers=[fate.number for fate in fates])
        messages: list[dict[str, Any]] = answer["messages"]
        assert [message["body"] for message in messages] == [fate.body for fate in fates]
        for message, fate in zip(messages, fates, strict=True):
            fate.came(message["sequence_number"])
            fate.confirm(DEFERRED)
        return messages

    def ask_for_doubtful(self) -> None:
        """Ask for messages whose last outcome had no answer, and that are or were deferred."""
        ends = {DEFERRED, COMPLETED}
        for fate in self.fates.all(lambda fate: bool(fate.maybe & ends) and DEFERRED in fate.done | fate.maybe):
            try:
                (message,) = self._ask([fate])
            except Refused as refused:
                if refused.level != "MessageNotFoundError":
                    raise
                if DEFERRED in fate.done:
                    assert COMPLETED in fate.maybe, f"{fate} is lost"
                    fate.confirm(COMPLETED)
                fate.maybe.discard(DEFERRED)
            else:
                self.program.do("settle", token=message["token"], how="abandon")

    def receive_the_rest(self) -> None:
        self.ask_for_doubtful()
        while messages := self.program.receive("q", 100, wait=2 * SOON_MS / 1000):
            for message in messages:
                self._note(message)
                self._settle(message, COMPLETED)
        while deferred := self.fates.deferred():
            for message in self._ask(deferred[:100]):
                self._settle(message, COMPLETED)


def test_scheduled_and_deferred_messages_survive_kills_of_the_broker(tmp_path: Path) -> None:
    source, fates, command = Random(SEED), Fates(), command_or_skip("servicebus")
    print(f"seed {SEED}")
    with Broker(tmp_path / "data", **SETTINGS) as broker, Program(command) as one, Program(command) as two:
        broker.declare("q", maxAttempts=0)
        sender, receiver = (Worker(each, fates, Random(source.random())) for each in (one, two))
        for _ in range(CYCLES):
            _connect(broker, one, two)
            _work_until_a_kill(broker, sender, receiver, fates.answers + source.randint(20, 60))
            broker.start()
        _connect(broker, one, two)
        sender.schedule_and_cancel(range(5))
        receiver.receive_the_rest()
        waiting = two.do("peek", from_="q", count=1000, number=1)["messages"]
        for message in waiting:
            assert now_ms() < fates.of(message).due, f"{message} was not received"
            fates.of(message).came(message["sequence_number"])
        sender.cancel([fates.of(message) for message in waiting])
        with Client(broker.url) as client:
            assert unsettled(client, "q") == {}
    ends = {CANCELLED, COMPLETED}
    assert fates.all(lambda fate: not (fate.done | fate.maybe) & ends and SCHEDULED in fate.done) == [], "they are lost"
    numbers = [fate.number for fate in fates.all() if fate.number is not None]
    assert len(set(numbers)) == len(numbers)


def _connect(broker: Broker, *programs: Program) -> None:
    for each in programs:
        each.do("leave")
        each.do("open", connection=connection_string(broker))


def _work_until_a_kill(broker: Broker, sender: Worker, receiver: Worker, answers: int) -> None:
    fates, killed = sender.fates, Event()

    def until_killed(work: Callable[[Iterable[int]], None]) -> None:
        try:
            work(itertools.count())
        except Refused:
            if not killed.is_set():
                raise

    with ThreadPoolExecutor() as threads:
        works = [threads.submit(until_killed, work) for work in (sender.schedule_and_cancel, receiver.receive_and_defer)]

        def is_time() -> bool:
            return (fates.answers >= answers and bool(fates.deferred())) or any(work.done() for work in works)

        try:
            until(is_time, "the programs work, and messages are deferred")
        finally:
            killed.set()
            broker.kill()
        for work in works:
            work.result()
