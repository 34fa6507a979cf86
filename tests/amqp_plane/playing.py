"""Random clients of `test_everything`, which do everything that a client may do.

All choices come from one random generator and the client's own state. With the same seed a history is the same, as far as
the broker's threads allow. A client never violates the protocol, so it is a failure if the broker ends a connection or a
session. A link may be refused, or end with its queue.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any

from penstock.broker_core.amqp import (
    Accepted,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Message,
    Modified,
    Receiver,
    Rejected,
    Released,
    Sender,
    Source,
    Target,
    TransactionalState,
    events,
)
from penstock.broker_core.amqp.performatives import SND_MIXED, SND_SETTLED, Header, Properties
from penstock.broker_core.amqp.states import LinkState, SessionState
from penstock.broker_core.amqp.transactions import LOCAL_TRANSACTIONS, TXN_ID, request
from penstock.broker_core.amqp.types import Described, Int, UByte, ULong
from penstock.broker_core.messages.annotations import DELIVERY_DELAY

from .frames import symbol
from .harness import Stage
from .library_client import Client

LINKS = 8  # of one kind, at one client
STAYS = [
    "retries",
    "levels",
    "last",
    "sticky",
    "block bytes",
    "dying",
    "back",
    "brief",
    "once",
    "dead",
    "locks",
]  # queues not deleted
SELECTOR = symbol("apache.org:selector-filter:string")
SELECTORS = [None, None, None, "JMSPriority > 4", "n = 1", "n <> 1 AND JMSXGroupID = 'g1'"]
OUTCOMES: list[Any] = [Accepted(), Released(), Rejected(), Modified(delivery_failed=True), Modified(undeliverable_here=True)]
OUTCOMES += [Modified(message_annotations={DELIVERY_DELAY: 20})]
OUTCOMES += [Accepted(), Accepted(), Released(), Modified(delivery_failed=True, message_annotations={symbol("x-opt-a"): 1})]
LIFETIMES = [0x2B, 0x2C, 0x2D, 0x2E]  # delete-on-close … delete-on-no-links-or-messages (3.5.10)
SUBSCRIPTIONS = {  # capabilities, whether it is durable, names of links
    "plain": (("topic",), False, ["plain {n}"]),
    "durable": (("topic",), True, ["d1", "d2"]),
    "shared": (("topic", "shared"), False, ["shared|{n}"]),
    "shared by all": (("topic", "shared", "global"), True, ["global|{n}"]),
}


@dataclass(repr=False)
class Game:
    """The shared state of the clients of one history. `acts`: the log of their actions, to explain a failure."""

    stage: Stage
    random: Random
    queues: Sequence[str]
    exchanges: Sequence[str]
    players: list[Player] = field(default_factory=list)
    acts: list[str] = field(default_factory=list)
    numbers: Any = field(default_factory=itertools.count)

    def join(self) -> Player:
        player = Player(self, f"container {next(self.numbers)}")
        self.players.append(player)
        return player


class Player(Client):
    """A connection with two sessions and any links. Each public method except `barrier` is an act."""

    def __init__(self, game: Game, container: str) -> None:
        super().__init__(game.stage.address, container)
        self.game, self.random, self.container = game, game.random, container
        self.takers: dict[Any, dict[int, Any]] = {}  # the deliveries of each link that are not settled, by delivery id
        self.asked: dict[Any, tuple[Source | None, dict[str, Any]]] = {}  # the source and options of each attach
        self.away: dict[Any, dict[int, Any]] = {}  # links that are detached, not closed, with their deliveries
        self.senders: dict[Sender, str | None] = {}  # and their targets; None: each message names its target
        self.controls: list[Sender] = []
        self.transactions: list[tuple[bytes, Sender]] = []
        self.sessions: list[Any] = []
        self._ended: set[Any] = set()
        self.on_event = self._on_event

    def act(self) -> None:
        while len(self.sessions) < 2:
            self.sessions.append(self.connection.begin())
        self.random.choices(list(ACTS), list(ACTS.values()))[0](self)

    def barrier(self) -> None:
        """Wait until all frames are processed. This wakes no link, so a lost wake-up stays lost."""
        session = self.connection.begin()
        self.until(lambda: session.remote_channel is not None, "the answer to a begin")
        session.end()
        self.until(lambda: session in self._ended, "the end of a session")

    def leave(self) -> None:
        """Close the connection in order."""
        self.on_event = lambda event: None
        self.connection.close()
        self.until(lambda: self.connection.finished, "the answer to a close")
        self.drop()

    # --- output of the broker

    def _on_event(self, event: Any) -> None:
        if isinstance(event, events.Delivered):
            held = self.takers.get(event.link, {})
            held.update((d.id, d) for d in event.deliveries if not (d.settled or d.remote_settled))
        elif isinstance(event, events.Disposed):
            self._disposed(event)
        elif isinstance(event, events.Detached):
            if event.link.state is LinkState.DETACH_RCVD:
                event.link.detach(closed=True)
            self._forget(event.link)
        elif isinstance(event, events.Ended):
            assert event.error is None, event.error
            self._ended.add(event.session)
        else:
            assert not isinstance(event, (events.Violated, events.Closed, events.Lost)), event

    def _disposed(self, event: events.Disposed) -> None:
        for delivery in event.deliveries:
            if delivery.remote_settled:
                self.takers.get(delivery.link, {}).pop(delivery.id, None)
                self.away.get(delivery.link, {}).pop(delivery.id, None)
            if delivery.link in self.takers:
                continue
            if delivery.link in self.controls and isinstance(event.state, Declared):
                self.transactions.append((event.state.txn_id, delivery.link))

    def _forget(self, link: Any) -> None:
        self.takers.pop(link, None)
        self.senders.pop(link, None)
        if link in self.controls:
            self.controls.remove(link)
            self.transactions = [(txn, control) for txn, control in self.transactions if control is not link]

    def _forget_session(self, session: Any) -> None:
        self.sessions.remove(session)
        for link in [*self.takers, *self.senders, *self.controls]:
            if link.session is session:
                self._forget(link)
        for link in [link for link in self.away if link.session is session]:
            self.away[link] = {}  # it may be resumed with these deliveries

    # --- for acts

    def _say(self, text: str) -> None:
        self.game.acts.append(f"{self.container}: {text}")

    def _name(self) -> str:
        return f"link {next(self.game.numbers)}"

    def _chance(self, share: float) -> bool:
        return self.random.random() < share

    def _attached(self, links: Iterable[Any]) -> list[Any]:
        return [link for link in links if link.state is LinkState.ATTACHED]

    def _receive(self, source: Source | None, name: str | None = None, **fields: Any) -> Receiver:
        link: Receiver = self.random.choice(self.sessions).receiver(name or self._name())
        self._say(f"{link.name} attaches to {source} {fields}")
        self.takers[link] = {}
        self.asked[link] = (source, fields)
        link.attach(source=source, target=Target(address="here"), **fields)
        self.until(lambda: link.state is not LinkState.ATTACH_SENT, "the answer to an attach")
        return link

    def _send_to(self, address: str | None, target: Target | None = None) -> Sender:
        link: Sender = self.random.choice(self.sessions).sender(self._name())
        self._say(f"{link.name} attaches, to send to {address}: {target}")
        self.senders[link] = address
        link.attach(source=Source(), target=target or Target(address=address))
        self.until(lambda: link.state is not LinkState.ATTACH_SENT, "the answer to an attach")
        return link

    def _some_filter(self) -> dict[Any, Any] | None:
        selector = self.random.choice(SELECTORS)
        return None if selector is None else {symbol("s"): Described(SELECTOR, selector)}

    def _some_transaction(self) -> bytes | None:
        return self.random.choice(self.transactions)[0] if self.transactions and self._chance(0.5) else None

    # --- acts: links

    def take(self, address: str | None = None) -> None:
        """Attach a consumer or browser with random selector, priority, default outcome and settle modes; seldom exclusive."""
        if len(self.takers) > LINKS:
            return
        queue = address or self.random.choice(self.game.queues)
        mode = "copy" if self._chance(0.2) else None
        outcome = self.random.choice([None, None, *OUTCOMES[:5]])
        wishes: dict[Any, Any] = {symbol("priority"): Int(self.random.randrange(-3, 4))} if self._chance(0.3) else {}
        if self._chance(0.02):
            wishes[symbol("exclusive")] = True
        self._receive(
            Source(address=queue, filter=self._some_filter(), distribution_mode=mode, default_outcome=outcome),
            snd_settle_mode=SND_SETTLED if self._chance(0.1) else SND_MIXED,
            rcv_settle_mode=self.random.choice([0, 0, 0, 1]),
            properties=wishes or None,
        )

    def subscribe(self) -> None:
        """Subscribe to an exchange. A durable subscription may already be in use, here or elsewhere."""
        capabilities, durable, names = SUBSCRIPTIONS[self.random.choice(list(SUBSCRIPTIONS))]
        name = self.random.choice(names).format(n=next(self.game.numbers))
        if len(self.takers) > LINKS or any(link.name == name for link in self.takers):
            return
        address = self.random.choice([*self.game.exchanges, "topic/a.#", "direct/a.b"])
        expiry = symbol("never" if durable else "link-detach")
        source = Source(address=address, filter=self._some_filter(), durable=2 * durable, expiry_policy=expiry)
        source.capabilities = tuple(map(symbol, capabilities))
        self._receive(source, name)

    def look_up(self) -> None:
        """Look up a durable subscription by its name alone."""
        name = self.random.choice(["d1", "d2"])
        if not any(link.name == name for link in self.takers):
            self._receive(None, name)

    def produce(self) -> None:
        if len(self.senders) > LINKS:
            return
        address = self.random.choice([*self.game.queues, *self.game.exchanges, "topic/a.b", None, None])
        at_once = (symbol("immediate"),) if self._chance(0.08) and address in (*self.game.queues, None) else ()
        self._send_to(address, Target(address=address, capabilities=at_once))

    def make_target(self) -> None:
        """Attach to a dynamic target; mostly a link receives from it."""
        topic = self._chance(0.5)
        policy: Any = {symbol("lifetime-policy"): Described(ULong(self.random.choice(LIFETIMES)), [])}
        capabilities = (symbol("temporary-topic"),) if topic else ()
        link = self._send_to(None, Target(dynamic=True, dynamic_node_properties=policy, capabilities=capabilities))
        address = self.senders[link] = link.target.address  # type: ignore[union-attr]
        if self._chance(0.7) and topic:
            self._receive(Source(address=address))
        elif self._chance(0.7):
            self.take(address)

    def make_source(self) -> None:
        """Attach to a dynamic source; a link sends to it."""
        policy: Any = {symbol("lifetime-policy"): Described(ULong(self.random.choice(LIFETIMES)), [])}
        link = self._receive(Source(dynamic=True, dynamic_node_properties=policy))
        sender = self.random.choice([player for player in self.game.players if player.sessions and not player.gone])
        sender._send_to(link.source.address)  # type: ignore[union-attr]

    def control(self) -> None:
        if len(self.controls) < 2:
            link = self.random.choice(self.sessions).sender(self._name())
            link.attach(source=Source(), target=Coordinator(capabilities=(symbol(LOCAL_TRANSACTIONS),)))
            self.controls.append(link)
            self.until(lambda: link.link_credit > 0, "credit for a coordinator")

    # --- acts: messages

    def send(self) -> None:
        links = self._attached(self.senders)
        if not links:
            return
        link, txn = self.random.choice(links), self._some_transaction()
        count = min(self.random.choice([1, 1, 2, 3, 10]), link.link_credit)
        self._say(f"{link.name} sends {count} to {self.senders[link]} in {txn!r}")
        state = None if txn is None else TransactionalState(txn_id=txn)
        for _ in range(count):
            if link.can_send:
                number = next(self.game.numbers)
                settled = txn is None and self._chance(0.1)
                link.send(b"%d" % number, self._message(link, number).encode(), settled=settled, state=state)

    def _message(self, link: Sender, number: int) -> Message:
        choice = self.random.choice
        subject, identity = choice(["a.b", "a.c", "a..c", "x", None]), choice([None, f"id {number % 9}"])
        known = Properties(group_id=choice([None, "g1", "g2", "g3"]), subject=subject, message_id=identity)
        if known.group_id and self._chance(0.1):
            known.group_sequence = 0xFFFFFFFF  # -1: the group is closed
        if self.senders[link] is None:
            known.to = choice([*self.game.queues, *self.game.exchanges, "topic/a.b", "nowhere"])
        header = Header(priority=UByte(self.random.randrange(10))) if self._chance(0.5) else Header()
        header.ttl = choice([30, 5000]) if self._chance(0.15) else None
        notes = {symbol("x-opt-delivery-delay"): ULong(choice([20, 60]))} if self._chance(0.1) else None
        body = b"%d" % number * choice([1, 1, 30])
        own = {"n": Int(number % 3)}
        return Message(header=header, properties=known, application_properties=own, data=[body], message_annotations=notes)

    def grant(self) -> None:
        links = self._attached(self.takers)
        if links:
            link, credit, drain = self.random.choice(links), self.random.choice([0, 1, 2, 5, 20]), self._chance(0.25)
            txn = self._some_transaction() if self._chance(0.2) else None
            self._say(f"{link.name}: credit {credit}{' drain' if drain else ''}{f' in {txn!r}' if txn else ''}")
            link.grant(credit, drain=drain, properties=None if txn is None else {symbol(TXN_ID): txn})

    def dispose(self) -> None:
        """Settle deliveries of all links of a session: settled, left to the broker to settle, or repeated."""
        links = [link for link in self._attached(self.takers) if self.takers[link]]
        if not links:
            return
        session = self.random.choice(links).session
        held = [d for link in links if link.session is session for d in self.takers[link].values()]
        held += [d for link, of in self.away.items() if link.session is session for d in of.values()]
        some = sorted(self.random.sample(held, self.random.randint(1, len(held))), key=lambda d: d.id)
        outcome, txn = self.random.choice(OUTCOMES), self._some_transaction()
        settled = self._chance(0.7 if txn is None else 0.3) and all(d.rcv_settle_mode != 1 for d in some)
        state = outcome if txn is None else TransactionalState(txn_id=txn, outcome=outcome)
        self._say(f"disposes {[(d.link.name, d.id) for d in some]} {state}{' settled' if settled else ''}")
        session.dispose(some, state, settled=settled)
        for delivery in some if settled else ():
            self.takers.get(delivery.link, {}).pop(delivery.id, None)
            self.away.get(delivery.link, {}).pop(delivery.id, None)

    # --- acts: transactions

    def declare(self) -> None:
        if self.controls and len(self.transactions) < 3:
            link = self.random.choice(self.controls)
            self._say(f"{link.name} declares")
            asked = link.send(b"%d" % next(self.game.numbers), request(Declare()))
            self.until(lambda: asked.remote_settled or link not in self.controls, "the answer to a declare")

    def discharge(self) -> None:
        if self.transactions:
            txn, link = self.transactions.pop(self.random.randrange(len(self.transactions)))
            fail = self._chance(0.3)
            self._say(f"{'rolls back' if fail else 'commits'} {txn!r}")
            link.send(b"%d" % next(self.game.numbers), request(Discharge(txn_id=txn, fail=fail)))

    # --- acts: ends

    def detach(self) -> None:
        links = self._attached([*self.takers, *self.senders, *(self.controls if self._chance(0.2) else ())])
        if links:
            holding = [link for link in links if self.takers.get(link)]
            link = self.random.choice(holding if holding and self._chance(0.7) else links)
            closed = self._chance(0.2 if self.takers.get(link) else 0.6)
            self._say(f"{link.name} detaches{' and closes' if closed else ''}")
            link.detach(closed=closed)
            if not closed and self.takers.get(link) and isinstance(link.remote_attach.source, Source):
                self.away[link] = self.takers[link]
            self._forget(link)

    def come_back(self) -> None:
        """Attach a detached link again: reattached on its session, or resumed by its unsettled map."""
        for link in [link for link in self.away if link.state is not LinkState.DETACHED and link.session in self.sessions]:
            self.until(lambda link=link: link.state is LinkState.DETACHED, "the answer to a detach")  # type: ignore[misc]
        if not self.away or len(self.takers) > LINKS:
            return
        link = self.random.choice(list(self.away))
        held, (source, fields), tags = self.away.pop(link), self.asked[link], list(link.unsettled)
        same = link.session in self.sessions and link.session.state is SessionState.MAPPED
        if same and source is not None and source.address in STAYS and self._chance(0.6):
            back: Receiver = link.session.receiver(link.name)
            back.adopt(link)
            self.takers[back] = held
            self._say(f"{link.name} comes back with {list(held)}")
        else:
            back = self.random.choice(self.sessions).receiver(link.name)
            states = {tag: self.random.choice([None, None, Accepted(), Released()]) for tag in tags if self._chance(0.8)}
            fields = {**fields, "unsettled": states, "incomplete_unsettled": self._chance(0.1)}
            self.takers[back] = {}
            self._say(f"{link.name} resumes {states}")
        self.asked[back] = self.asked[link]
        back.attach(source=source, target=Target(address="here"), **fields)
        self.until(lambda: back.state is not LinkState.ATTACH_SENT, "the answer to an attach")

    def end(self) -> None:
        session = self.random.choice(self.sessions)
        if session.state is SessionState.MAPPED:
            self._say("a session ends")
            session.end()
            self._forget_session(session)

    def lose(self) -> None:
        self._say("the connection is lost")
        if self._chance(0.5):
            self.pump()
        self.drop()


#: Weights: most acts send and settle messages.
ACTS = {Player.send: 60, Player.grant: 80, Player.dispose: 120, Player.take: 50, Player.produce: 30}
ACTS |= {Player.subscribe: 12, Player.look_up: 2, Player.make_target: 5, Player.make_source: 5, Player.control: 20}
ACTS |= {Player.declare: 30, Player.discharge: 40, Player.detach: 30, Player.come_back: 30, Player.end: 4, Player.lose: 4}
