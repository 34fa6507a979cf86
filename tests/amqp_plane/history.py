"""Generated histories of links on one queue, and the laws of the queue and its holders.

One thread plays all clients. After a step (`calm`) every frame of the plane has been read, so the state of the service and the
knowledge of the clients can be compared, message by message. The barrier is a session that begins and ends: its end comes after
all effects and wakes no link, so a lost wake-up stays lost.
"""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

import numpy as np

from penstock.broker_core.amqp import Accepted, Modified, Receiver, Rejected, Released, Sender, Source, Target, events
from penstock.broker_core.amqp.messages import decode_message
from penstock.broker_core.amqp.performatives import SND_MIXED, SND_SETTLED
from penstock.broker_core.amqp.states import LinkState
from penstock.broker_core.engine.columns.states import State

from ..service.helpers import enqueue
from .frames import message, symbol
from .harness import Stage
from .library_client import Client

QUEUE = "q"
_NUMBERS = itertools.count()


@dataclass(eq=False)
class Taker:
    """A receiving link, as its client sees it."""

    client: Player
    link: Receiver
    session: Any
    settled: bool
    held: dict[int, Any] = field(default_factory=dict)  # sequence number → delivery
    excluded: set[int] = field(default_factory=set)
    fresh: list[int] = field(default_factory=list)  # delivered since the last step, in order
    worked_on: int = -1  # delivery id of the last delivery with an outcome of work that was done, or that has failed

    @property
    def alive(self) -> bool:
        return self.link.state is LinkState.ATTACHED and not self.client.gone


class Player(Client):
    """A connection with two sessions, a sender, and takers by name."""

    def __init__(self, history: History, container: str) -> None:
        super().__init__(history.stage.address, container)
        self.history = history
        self.container = container
        self.takers: dict[str, Taker] = {}
        self.ended: set[Any] = set()
        self.on_event = self._on_event
        self.sessions = [self.connection.begin(), self.connection.begin()]
        self.sender: Sender = self.sessions[0].sender(f"in {next(_NUMBERS)}")
        self.sender.attach(source=Source(), target=Target(address=QUEUE))
        self.until(lambda: self.sender.link_credit > 0, "credit to send")

    def _on_event(self, event: Any) -> None:
        if isinstance(event, events.Delivered):
            self.history.delivered(event)
        elif isinstance(event, events.Detached):
            if event.link.state is LinkState.DETACH_RCVD:
                assert event.error is not None
                assert event.error.condition == "amqp:link:stolen", event.error
                event.link.detach()
            self.takers = {name: taker for name, taker in self.takers.items() if taker.link is not event.link}
        elif isinstance(event, events.Ended):
            self.ended.add(event.session)
        elif isinstance(event, events.Disposed):
            if event.deliveries and isinstance(event.deliveries[0].link, Sender):
                assert isinstance(event.state, Accepted)
                self.history.confirmed += len(event.deliveries)
        else:
            assert not isinstance(event, (events.Violated, events.Closed, events.Lost)), event

    def barrier(self) -> None:
        session = self.connection.begin()
        self.until(lambda: session.remote_channel is not None, "the answer to a begin")
        session.end()
        self.until(lambda: session in self.ended, "the end of a session")

    def take(self, name: str, *, settled: bool) -> Taker:
        session = self.history.random.choice(self.sessions)
        link = session.receiver(name)
        mode = SND_SETTLED if settled else SND_MIXED
        link.attach(
            source=Source(address=QUEUE, expiry_policy="link-detach"), target=Target(address="here"), snd_settle_mode=mode
        )
        taker = self.takers[name] = Taker(self, link, session, settled)
        self.history.all_takers.append(taker)
        self.until(lambda: link.state is not LinkState.ATTACH_SENT, "the answer to an attach")
        return taker


class History:
    """`step` does one thing; `check` compares. `exact`: nothing else happens until a step is over, so that order and counts of
    attempts can be foretold."""

    def __init__(self, stage: Stage, seed: int, *, exact: bool, players: int = 3) -> None:
        self.stage, self.random, self.exact = stage, Random(seed), exact
        self.acts: list[str] = []
        self.all_takers: list[Taker] = []
        self.sent = self.confirmed = 0
        self.attempts: Counter[int] = Counter()
        self.returned: set[int] = set()
        self.settled: set[int] = set()
        self.bodies: dict[int, bytes] = {}
        self.players = [Player(self, f"container {number // 2}") for number in range(players)]

    # --- events of the clients

    def delivered(self, event: events.Delivered) -> None:
        taker = next(taker for taker in self.all_takers if taker.link is event.link)
        for delivery in event.deliveries:
            number = int.from_bytes(delivery.tag, "big")
            message = decode_message(delivery.payload)
            assert number not in self.settled, f"{number} was settled"
            assert self.bodies.setdefault(number, message.data[0]) == message.data[0]
            taker.fresh.append(number)
            if taker.settled:
                self.settled.add(number)
            else:
                taker.held[number] = delivery
            if self.exact:
                header = message.header
                count = header.delivery_count if header else 0
                first = bool(header and header.first_acquirer)
                assert count == self.attempts[number], f"{number}: delivery-count {count}, not {self.attempts[number]}"
                assert first == (number not in self.returned), f"{number}: first-acquirer {first}"

    # --- steps

    def step(self) -> None:
        players = [player for player in self.players if not player.gone]
        player = self.random.choice(players)
        takers = list(player.takers.values())
        taker = self.random.choice(takers) if takers else None
        actions: list[tuple[int, Any]] = [(4, self._send), (1, self._publish), (4, self._attach)]
        if taker is not None:
            actions += [(8, self._credit), (6, self._accept), (4, self._release), (4, self._modify), (2, self._detach)]
            actions += [(1, self._drop), (1, self._steal), (1, self._reject)]
        action = self.random.choices([a for _, a in actions], [w for w, _ in actions])[0]
        action(player, taker)

    def _say(self, text: str) -> None:
        self.acts.append(text)

    def _send(self, player: Player, taker: Taker | None) -> None:
        count = min(self.random.choice([1, 1, 2, 5, 30]), player.sender.link_credit)
        self._say(f"{count} sent")
        tags = [b"%d" % number for number in range(self.sent, self.sent + count)]
        sent = player.sender.send_many(tags, [message(tag) for tag in tags])
        self.sent += len(sent)

    def _publish(self, player: Player, taker: Taker | None) -> None:
        """Publish without AMQP, from another thread than the plane's."""
        self._say("2 published")
        self.stage.service.submit(enqueue(QUEUE, b"%d" % self.sent, b"%d" % (self.sent + 1)))
        self.sent += 2
        self.confirmed += 2

    def _attach(self, player: Player, taker: Taker | None) -> None:
        name = f"link {self.random.randrange(3)}"
        others = [peer for peer in self.players if peer.container == player.container and name in peer.takers]
        if others:
            return
        self._say(f"{name} attached at {player.container}")
        player.take(name, settled=self.exact and self.random.random() < 0.1)

    def _steal(self, player: Player, taker: Taker | None) -> None:
        assert taker is not None
        others = [p for p in self.players if p.container == player.container and p is not player and not p.gone]
        if others:
            self._say(f"{taker.link.name} stolen")
            player.barrier()  # there is no order between two connections
            self._lost(taker)
            player.takers.pop(taker.link.name)
            others[0].take(taker.link.name, settled=taker.settled)

    def _credit(self, player: Player, taker: Taker | None) -> None:
        assert taker is not None
        credit, drain = self.random.choice([0, 1, 2, 5, 20]), self.random.random() < 0.2
        self._say(f"{taker.link.name}: credit {credit}{' drain' if drain else ''}")
        if taker.alive:
            taker.link.grant(credit, drain=drain)

    def _some(self, taker: Taker | None) -> tuple[Taker, list[Any]]:
        assert taker is not None
        count = self.random.randint(0, len(taker.held))
        numbers = sorted(self.random.sample(sorted(taker.held), count))
        return taker, [taker.held.pop(number) for number in numbers]

    def _dispose(self, taker: Taker, deliveries: list[Any], state: Any) -> list[int]:
        self._say(f"{taker.link.name}: {type(state).__name__.lower()} {len(deliveries)}")
        if deliveries:
            taker.session.dispose(deliveries, state, settled=self.random.random() < 0.7)
        return [int.from_bytes(delivery.tag, "big") for delivery in deliveries]

    def _work(self, taker: Taker, deliveries: list[Any], state: Any) -> list[int]:
        taker.worked_on = max([taker.worked_on, *(delivery.id for delivery in deliveries)])
        return self._dispose(taker, deliveries, state)

    def _accept(self, player: Player, taker: Taker | None) -> None:
        self.settled.update(self._work(*self._some(taker), Accepted()))

    def _reject(self, player: Player, taker: Taker | None) -> None:
        self.settled.update(self._work(*self._some(taker), Rejected()))

    def _release(self, player: Player, taker: Taker | None) -> None:
        self.returned.update(self._dispose(*self._some(taker), Released()))

    def _modify(self, player: Player, taker: Taker | None) -> None:
        taker, deliveries = self._some(taker)
        failed, here = self.random.random() < 0.5, self.random.random() < 0.3
        notes = {symbol("x-opt-n"): self.random.randrange(5)} if self.random.random() < 0.5 else None
        state = Modified(delivery_failed=failed, undeliverable_here=here, message_annotations=notes)
        numbers = (self._work if failed else self._dispose)(taker, deliveries, state)
        self.returned.update(numbers)
        self.attempts.update(numbers if failed else ())
        taker.excluded.update(numbers if here else ())

    def _lost(self, taker: Taker) -> None:
        """Count deliveries up to the last one that was worked on, and the next one; not the other prefetched ones."""
        in_order = sorted(taker.held, key=lambda number: taker.held[number].id)
        begun = sum(taker.held[number].id <= taker.worked_on for number in in_order) + 1
        self.attempts.update(in_order[:begun])
        self.returned.update(taker.held)
        taker.held.clear()

    def _detach(self, player: Player, taker: Taker | None) -> None:
        assert taker is not None
        self._say(f"{taker.link.name} detached")
        if taker.alive:
            taker.link.detach(closed=self.random.random() < 0.5)
            self._lost(taker)
            player.takers.pop(taker.link.name, None)

    def _drop(self, player: Player, taker: Taker | None) -> None:
        self._say("a connection lost")
        player.barrier()  # its frames have been read: a socket that closes with unread input may lose them
        before = len(self.stage.plane._accepted)
        for holder in player.takers.values():
            self._lost(holder)
        player.drop()
        self.stage.until(lambda: len(self.stage.plane._accepted) < before, "the plane sees the connection go")
        self.players[self.players.index(player)] = Player(self, player.container)

    # --- laws

    def calm(self) -> None:
        """Wait until every due frame has been read."""
        for _ in range(2):
            for player in self.players:
                player.barrier()
            self.stage.settle()

    def check(self) -> None:
        state, holder = self._state()
        counts = Counter(state.tolist())
        assert len(state) == self.sent, "a message is missing"
        assert counts[State.AVAILABLE] + counts[State.ACQUIRED] + counts[State.ARCHIVED] == self.sent
        assert self.confirmed <= self.sent
        available = set(np.flatnonzero(state == State.AVAILABLE).tolist())
        assert set(np.flatnonzero(state == State.ARCHIVED).tolist()) == self.settled
        links = self._links()
        alive = {(taker.client.container, taker.link.name): taker for p in self.players for taker in p.takers.values()}
        assert set(links) == set(alive), "the plane has the links that the clients have"
        held: set[int] = set()
        for key, taker in alive.items():
            mine = set(np.flatnonzero((state == State.ACQUIRED) & (holder == links[key])).tolist())
            assert mine == set(taker.held), f"{key} holds {sorted(taker.held)}, the queue says {sorted(mine)}"
            assert not mine & held, "one message, one holder"
            held |= mine
            assert not taker.link.drain, f"{key} waits for its drain"
            left = available - taker.excluded
            if left and not self._at_a_limit(taker):
                assert taker.link.link_credit == 0, f"{key} has credit {taker.link.link_credit} and waits for {sorted(left)}"
        assert held == set(np.flatnonzero(state == State.ACQUIRED).tolist()), "a link holds each acquired message"
        self._check_order(available)
        for taker in self.all_takers:
            taker.fresh.clear()

    def _at_a_limit(self, taker: Taker) -> bool:
        settings = self.stage.plane.settings
        in_all = sum(len(sibling.held) for sibling in taker.client.takers.values())
        assert len(taker.held) <= settings.amqp_max_unsettled
        assert in_all <= settings.amqp_max_unsettled_per_connection
        return len(taker.held) == settings.amqp_max_unsettled or in_all == settings.amqp_max_unsettled_per_connection

    def _check_order(self, available: set[int]) -> None:
        if not self.exact:
            return
        for taker in self.all_takers:
            assert taker.fresh == sorted(taker.fresh), f"{taker.link.name} got {taker.fresh}"
            if taker.fresh and taker.alive:
                overlooked = {n for n in available - taker.excluded if n < taker.fresh[-1]}
                assert not overlooked, f"{taker.link.name} got {taker.fresh}, and before it stood {sorted(overlooked)}"

    def _state(self) -> tuple[Any, Any]:
        with self.stage.service.turn():
            blocks = self.stage.service.state.queues[QUEUE].blocks
            assert list(blocks) in ([], [0]), "small histories"
            if not blocks:
                return np.zeros(0, np.uint8), np.zeros(0, np.int64)
            block = blocks[0]
            holder = block.holder.get(slice(0, block.filled))
            return block.state[: block.filled].copy(), np.broadcast_to(holder, block.filled).copy()

    def _links(self) -> dict[tuple[str, str], int]:
        holders = {}
        for wire in list(self.stage.plane._accepted):
            for link, endpoint in list(wire.peer.links.items()) if wire.peer else ():
                if isinstance(link, Sender):
                    key = (wire.peer.container, link.name)  # type: ignore[union-attr]
                    assert key not in holders
                    holders[key] = endpoint.holder  # type: ignore[union-attr]
        return holders
