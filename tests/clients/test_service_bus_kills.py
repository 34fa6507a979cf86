"""kill -9 of the broker under sessions of the vendor's Python SDK, with a ledger outside of the broker.

No confirmed message is lost, and no completed message comes again. Each session keeps its order, and its state is the last
confirmed one. A step without an answer may be done or not, and both are accepted.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .driving import Program, Refused
from .service_bus import connection_string, unsettled
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
