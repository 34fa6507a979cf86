"""C11 with an independent controller: transactions of python-qpid-proton's reactor, compared with a list."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.engine.columns.states import State

from ..service.helpers import enqueue
from .harness import Stage, stage

pytest.importorskip("proton")

from proton import Message
from proton.handlers import MessagingHandler, TransactionHandler
from proton.reactor import Container

PATIENCE_S = 30
MESSAGES, TRANSACTIONS = 40, 15


class Play(MessagingHandler, TransactionHandler):
    """Takes messages from `in` and sends others to `out`, in transactions that it commits or aborts."""

    def __init__(self, url: str, seed: int, *, settle_early: bool) -> None:
        super().__init__(prefetch=MESSAGES, auto_accept=False)
        self.url, self.random, self.settle_early = url, random.Random(seed), settle_early
        self.held: dict[str, Any] = {}  # by body, the delivery
        self.live = {str(number) for number in range(MESSAGES)}
        self.sent: list[str] = []
        self.left = TRANSACTIONS
        self.waiting = self.finished = False
        self.errors: list[str] = []

    def on_start(self, event: Any) -> None:
        self.container = event.container
        self.connection = self.container.connect(self.url, reconnect=False)
        self.receiver = self.container.create_receiver(self.connection, "in")
        self.sender = self.container.create_sender(self.connection, "out")
        self.patience = self.container.schedule(PATIENCE_S, self)
        self.waiting = True

    def on_timer_task(self, event: Any) -> None:
        self.errors.append("it did not come to its end")
        self.connection.close()

    def on_message(self, event: Any) -> None:
        body = bytes(event.message.body).decode()
        if body in self.held or body not in self.live:
            self.errors.append(f"{body} came, and was here or gone")
        self.held[body] = event.delivery
        self.go_on()

    def go_on(self) -> None:
        """Begin the next transaction when all live messages were delivered."""
        if self.waiting and self.held.keys() == self.live and self.sender.credit:
            self.waiting = False
            if not self.left:
                self.finished = True
                self.leave()
                return
            self.left -= 1
            self.container.declare_transaction(self.connection, handler=self, settle_before_discharge=self.settle_early)

    on_sendable = lambda self, event: self.go_on()  # noqa: E731

    def on_transaction_declared(self, event: Any) -> None:
        transaction = event.transaction
        self.taken = self.random.sample(sorted(self.held), min(len(self.held), self.random.randint(0, 3)))
        self.sending = [f"{self.left}.{number}" for number in range(self.random.randint(0, 5))]
        for body in self.sending:
            transaction.send(self.sender, Message(body=body.encode()))
        for body in self.taken:
            transaction.accept(self.held[body])
        (transaction.commit if self.random.random() < 0.6 else transaction.abort)()

    def on_transaction_committed(self, event: Any) -> None:
        for body in self.taken:
            del self.held[body]
        self.live -= set(self.taken)
        self.sent += self.sending
        self.next()

    def on_transaction_aborted(self, event: Any) -> None:
        for body in self.taken:  # proton releases them, or had settled them
            del self.held[body]
        self.next()

    def next(self) -> None:
        self.waiting = True
        self.go_on()

    def failed(self, event: Any) -> None:
        self.errors.append(event.type.name)
        self.leave()

    def leave(self) -> None:
        self.patience.cancel()
        self.connection.close()

    on_transaction_declare_failed = on_transaction_commit_failed = on_link_error = on_connection_error = failed


def live(made: Stage, queue: str) -> int:
    return sum(count for state, count in made.counts(queue).items() if state != State.ARCHIVED.name.lower())


@pytest.mark.parametrize("settle_early", [False, True])
@pytest.mark.parametrize("seed", range(2))
def test_transactions_as_proton_plays_them(seed: int, settle_early: bool, tmp_path: Path) -> None:
    with stage(tmp_path) as made:
        made.declare("in", "out")
        made.service.submit(enqueue("in", *(str(number).encode() for number in range(MESSAGES))))
        play = Play("amqp://{}:{}".format(*made.address), seed, settle_early=settle_early)
        Container(play).run()
        assert play.errors == []
        assert play.finished
        made.until(lambda: "acquired" not in made.counts("in"), "its links have ended")
        assert live(made, "in") == len(play.live)
        assert made.counts("out") == ({"available": len(play.sent)} if play.sent else {})
        assert not made.service.state.transactions.open
        assert not made.service.state.stages
