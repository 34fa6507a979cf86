"""Requests of links as values: where their messages go, and outcomes in a transaction."""

from __future__ import annotations

from typing import NamedTuple

from ...engine.columns.states import Outcome
from ...engine.model.dispositions import DeliveryEnd
from ...errors import TransactionRolledBack


class TransactionWork:
    """Counts of a transaction. If they differ at its commit, it is rolled back.

    `asked`: messages and outcomes that named it. `done`: the ones carried out. `failed`: why it cannot be committed.
    """

    __slots__ = ("asked", "done", "failed", "number")

    def __init__(self, number: int) -> None:
        self.number = number
        self.asked = self.done = 0
        self.failed: Exception | None = None

    def fail(self, error: Exception) -> None:
        if self.failed is None:
            self.failed = error

    def check(self) -> None:
        if self.done != self.asked:
            self.fail(
                TransactionRolledBack(
                    f"{self.done} of the {self.asked} messages and outcomes that named it could be done;"
                    " the others were refused, or came when their link, delivery or lock had ended"
                )
            )


class Immediate(NamedTuple):
    """Route of messages that are delivered immediately or not at all."""

    queue: str


class ExchangeRoute(NamedTuple):
    """Route through an exchange. Messages of one commit with an equal route become one command."""

    exchange: str
    key: str | None = None  # None: each message's subject
    container: str | None = None  # of the sender, if a binding depends on it
    transaction: int | None = None


class Posting(NamedTuple):
    """Route in a transaction: the messages are staged, and arrive at its commit (4.4.1)."""

    route: str | ExchangeRoute
    transaction: TransactionWork
    number: int | None = None  # as in `Whole`


class Whole(NamedTuple):
    """Route of messages that are accepted together or not at all: those with the same `number`."""

    route: str | ExchangeRoute
    number: int


Route = str | Immediate | ExchangeRoute | Posting | Whole


def is_whole(route: Route) -> bool:
    return isinstance(route, Whole) or (isinstance(route, Posting) and route.number is not None)


def node_of(route: Route) -> str:
    if isinstance(route, (Posting, Whole)):
        return node_of(route.route)
    return route if isinstance(route, str) else route[0]


class Retirement(NamedTuple):
    """Disposition of messages if a transaction commits. `settled`: the receiver has forgotten their deliveries."""

    disposition: DeliveryEnd
    default: DeliveryEnd | None
    transaction: TransactionWork
    settled: bool

    @property
    def outcome(self) -> Outcome | None:
        return self.disposition.outcome
