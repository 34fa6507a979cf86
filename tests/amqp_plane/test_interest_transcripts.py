"""Golden transcripts of seed 001: the notified links, their answers, and their lists. See `test_transcripts`."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker_core.amqp_plane.loop.interest import INTERESTED, NOTIFIED, RESTS, Candidate, Interest
from penstock.broker_core.engine import commands as c

from ..engine.test_transcripts import Script, compare, play, show

FILES = sorted((Path(__file__).parent / "transcripts" / "interest").glob("*.txt"))


class Link(Candidate):
    def __init__(self, name: str, priority: int, *, acquires: bool) -> None:
        self.name, self.priority, self.acquires = name, priority, acquires
        self.credit = 0
        self.stuck = False
        self.place = 0

    @property
    def capacity(self) -> int:
        return 0 if self.stuck else self.credit


class InterestScript(Script):
    """A queue with its consumers, as in a plane. `turn` does the plane's work after an event."""

    QUANTUM = 2

    def __init__(self) -> None:
        super().__init__()
        self.interest: Interest[Link] = Interest()
        self.consumer: dict[str, Link] = {}

    def attach(self, name: str, *words: str) -> str:
        options = dict(word.partition("=")[::2] for word in words)
        link = Link(name, int(options.get("priority", 0)), acquires="browses" not in options)
        self.consumer[name] = link
        if link.acquires:
            self.links[name] = self.engine.run(c.Subscribe("q", link.priority, "exclusive" in options))
        self.interest.join(self._number(name), link)
        self.interest.only(self.engine.state.queues["q"].consumers.active)
        return "attached"

    def _number(self, name: str) -> int:
        return self.links.get(name, -ord(name[0]))

    def credit(self, name: str, credit: str) -> str:
        self.consumer[name].credit = int(credit)
        if int(credit):
            self.interest.wants(self.consumer[name])
        return self.stand(name)

    def socket(self, name: str, state: str) -> str:
        self.consumer[name].stuck = state == "full"
        if state == "flows":
            self.interest.wants(self.consumer[name])
        return self.stand(name)

    def stand(self, name: str) -> str:
        return {RESTS: "not interested", INTERESTED: "interested", NOTIFIED: "notified"}[self.consumer[name].standing]

    def enqueue(self, count: str, size: str = "1") -> str:
        answer = super().enqueue(count, size)
        self.interest.news()
        return answer

    def not_here(self, name: str, rows: str, annotations: str = "") -> str:
        answer = super().not_here(name, rows, annotations)
        self.interest.news()
        return answer

    def detach(self, name: str) -> str:
        self.interest.leave(self._number(name))
        del self.consumer[name]
        answer = self.lose(name)
        self.interest.only(self.engine.state.queues["q"].consumers.active)
        if answer != "back: nothing":
            self.interest.news()
        return answer

    def turn(self) -> str:
        """Run one turn. Returns the links that looked, in order, with the messages that each took."""
        self.interest.begin_round()
        texts = []
        while (link := self.interest.next(bool(self.engine.state.queues["q"].counts[1]))) is not None:
            texts.append(f"{link.name} {self._look(link)}")
        return "; ".join(texts) or "no link looks"

    def _look(self, link: Link) -> str:
        wanted = min(link.capacity, self.QUANTUM)
        if not wanted:
            self.interest.rests(link)
            return "cannot"
        if link.acquires:
            rows = self.engine.run(c.Acquire("q", self.links[link.name], wanted)).rows
        else:
            rows, link.place, _ = self.engine.run(c.Browse("q", link.place, wanted))
        link.credit -= rows.count
        if not link.capacity:
            self.interest.rests(link)
        elif rows:
            self.interest.stays(link)
        else:
            self.interest.waits(link)
        return f"{'took' if link.acquires else 'saw'} {show(rows)}"

    def lists(self) -> str:
        names = {"notified": NOTIFIED, "interested": INTERESTED, "not interested": RESTS}
        acquiring = [link for link in self.consumer.values() if link.acquires]
        groups = {label: [x.name for x in acquiring if x.standing == standing] for label, standing in names.items()}
        groups["non-acquiring"] = [link.name for link in self.consumer.values() if not link.acquires]
        return "; ".join(f"{label}: {' '.join(who)}" for label, who in groups.items() if who)


@pytest.mark.parametrize("path", FILES, ids=[path.stem for path in FILES])
def test_transcript(path: Path) -> None:
    """C1 C2 C4 Q5 Q22."""
    compare(path, play(path, InterestScript()))
