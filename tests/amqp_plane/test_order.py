"""Order: requests of one session are durable in the order in which they were sent.

A client does random things on two sessions: it sends to two queues, and settles deliveries of two others, alone and in
transactions. The disk of its broker records each write. A crash leaves a prefix of the log. A broker that starts on any prefix
has the first requests of each session, without a gap.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from penstock.broker_core.amqp.performatives import Accepted, Begin, Rejected, Transfer
from penstock.broker_core.engine.columns.states import State
from penstock.broker_core.journal.manifest import SYNCED_NAME

from ..journal.lying_disk import LyingDisk
from ..service.helpers import enqueue, running
from .frames import begin, flow, message, receives, says, sends, transfer
from .harness import Script, Stage, stage

FROM, TO = ("m", "n"), ("x", "y")
HELD = 40  # messages that each session holds of each queue
SESSIONS = 2

Request = tuple[str, str, int]  # session's queue, kind, number of the message


class NotingDisk(LyingDisk):
    """Notes how long its log was at each sync."""

    def __init__(self) -> None:
        super().__init__()
        self.noted: list[int] = []

    @property
    def log(self) -> str:
        [log] = [name for name in self.names() if name.endswith(".seg")]
        return log

    def _call(self, call: str, name: str = "") -> None:
        super()._call(call, name)
        if call == "sync" and any(file.endswith(".seg") for file in self.names()):
            self.noted.append(len(self.data(self.log)))


class Talk:
    """Requests that were sent on one session, in order."""

    def __init__(self, a: Script, channel: int) -> None:
        self.a, self.channel = a, channel
        self.requests: list[Request] = []
        self.sent = 0
        self.counts = dict.fromkeys(TO, 0)
        self.open = {name: list(range(HELD)) for name in FROM}  # numbers of messages that it has not settled
        self.outcomes = [Accepted(), Rejected()]

    def begin(self) -> None:
        a, channel = self.a, self.channel
        a.send(begin(), channel=channel)
        a.expect(Begin)
        for handle, name in enumerate(TO):
            a.send(sends(f"{name}{channel}", handle), channel=channel)
        for handle, name in enumerate(FROM, len(TO)):
            a.send(receives(f"{name}{channel}", handle), flow(handle, HELD), channel=channel)
            for _ in range(HELD):
                while not isinstance(a.read(1)[0], Transfer):
                    pass

    def send(self, random: Random) -> object:
        name, settled = random.choice(TO), random.random() < 0.3
        self.requests.append((f"{name}{self.channel}", "sent", self.counts[name]))
        self.counts[name] += 1
        self.sent += 1
        return transfer(self.sent - 1, message(b"m"), TO.index(name), settled=settled)

    def settle(self, random: Random) -> object | None:
        name = random.choice(FROM)
        if not self.open[name]:
            return None
        number = self.open[name].pop(random.randrange(len(self.open[name])))
        self.requests.append((f"{name}{self.channel}", "settled", number))
        outcome = random.choice(self.outcomes)
        return says(outcome, FROM.index(name) * HELD + number, settled=random.random() < 0.8)


@pytest.mark.parametrize("seed", range(4))
def test_whatever_a_crash_leaves_is_the_first_of_what_each_session_said(seed: int, tmp_path: Path) -> None:
    random, disk = Random(seed), NotingDisk()
    with stage(tmp_path, disk=disk) as s:
        for channel in range(SESSIONS):
            s.declare(*(f"{name}{channel}" for name in (*FROM, *TO)))
            for name in FROM:
                s.service.submit(enqueue(f"{name}{channel}", *[b"m"] * HELD))
        a = s.script()
        talks = [Talk(a, channel) for channel in range(SESSIONS)]
        for talk in talks:
            talk.begin()
        begun = len(disk.noted)
        _talk(s, a, talks, random)
        s.until(lambda: s.service.journal.durable >= s.service.journal.end, "all of it is on the disk")
        lengths, all_of_it = disk.noted[begun:], disk.copy()
    seen = _crashes(disk.log, all_of_it, lengths, talks)
    assert len(seen) > 4, "too few crashes had a part of it"
    assert max(seen) == tuple(len(talk.requests) for talk in talks)


@pytest.mark.parametrize(("seed", "asks_again"), [(0, False), (2, True), (3, True)])
def test_what_is_said_behind_a_message_that_finds_no_room_in_the_journal_waits_for_it(
    seed: int, asks_again: bool, tmp_path: Path
) -> None:
    """`asks_again`: also where its link asks for more, of a queue in which an outcome may free something."""
    random, disk = Random(seed), NotingDisk()
    with stage(tmp_path, disk=disk) as s:
        s.declare("large", *(f"{name}0" for name in (*FROM, *TO)), **({"rejected": "return"} if asks_again else {}))
        for name in FROM:
            s.service.submit(enqueue(f"{name}0", *[b"m"] * HELD))
        a = s.script()
        talk = Talk(a, 0)
        if asks_again:
            talk.outcomes = [Accepted()]  # rejected messages come back
        talk.begin()
        begun = len(disk.noted)
        s.slow_disk()
        s.service.journal._options = replace(s.service.journal._options, buffer_bytes=1 << 20)  # so that one message fills it
        s.crowd("large")
        acts = (talk.send, talk.settle, talk.send, talk.settle, talk.settle)
        more = [flow(len(TO) + handle, HELD, delivery_count=HELD) for handle in range(len(FROM))] if asks_again else []
        a.send(*[act(random) for act in acts], *more, flow(None, echo=True))  # type: ignore[list-item]
        s.until(lambda: bool(s.plane.commit_loop._batch._paused), "the sender is held")
        s.quick_disk()
        a.send(flow(None, echo=True))
        s.settle()
        s.until(lambda: s.service.journal.durable >= s.service.journal.end, "all of it is on the disk")
        lengths, all_of_it = disk.noted[begun:], disk.copy()
    seen = _crashes(disk.log, all_of_it, lengths, [talk])
    assert {min(seen), max(seen)} == {(0,), (5,)}


def _crashes(log: str, disk: LyingDisk, lengths: list[int], talks: list[Talk]) -> set[tuple[int, ...]]:
    """Remains of each talk after a crash behind each group of the log, and in one of them."""
    seen = set()
    for length in [*lengths, lengths[len(lengths) // 2] - 9]:
        after = disk.copy()
        after.truncate(log, length)
        after.unlink(SYNCED_NAME)  # a power cut may take it, as it was never synced itself
        seen.add(_check(after, talks))
    return seen


def _talk(s: Stage, a: Script, talks: list[Talk], random: Random) -> None:
    """Bursts of requests; the client waits for some of them."""
    for _ in range(40):
        talk = random.choice(talks)
        bodies = [random.choice([talk.send, talk.settle, talk.settle])(random) for _ in range(random.choice([1, 1, 2, 5]))]
        a.send(*[body for body in bodies if body is not None], channel=talk.channel)  # type: ignore[misc]
        if random.random() < 0.4:
            a.send(flow(None, echo=True), channel=talk.channel)
        if random.random() < 0.5:
            s.settle()
    s.settle()


def _check(disk: LyingDisk, talks: list[Talk]) -> tuple[int, ...]:
    """Count the requests of each session that exist. None may follow a missing one."""
    counts = []
    with running(disk) as service:
        state = service.state
        for talk in talks:
            present = []
            for name, action, number in talk.requests:
                queue = state.queues.get(name)
                if queue is None:
                    present.append(False)
                elif action == "sent":
                    present.append(queue.next_sequence > number)
                else:
                    block = queue.blocks[0]
                    present.append(number < block.filled and block.state[number] == State.ARCHIVED)
            count = int(sum(present))
            missing = [request for request, is_there in zip(talk.requests, present, strict=True) if not is_there]
            assert present == [True] * count + [False] * (len(present) - count), (
                f"session {talk.channel}: {missing[0]} is missing, and later requests exist"
            )
            counts.append(count)
    return tuple(counts)
