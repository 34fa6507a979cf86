"""Ports: what a link may ask of the loop, of its connection and of the plane, and what these ask of a link.

The links, and the nodes and transactions behind them, know their surroundings by these protocols alone. `Loop` is implemented by
`loop.passes.Passes`, `LinkPeer` by `connections.peer.Peer`, `Host` by `loop.server.AmqpPlane`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol, TypeAlias

from ..engine.columns.states import Cause

if TYPE_CHECKING:
    from ..amqp import Connection, Link, Session
    from ..amqp.deliveries import Delivery
    from ..amqp.performatives import Error
    from ..engine.commands import Maker
    from ..engine.model.dispositions import Disposition
    from ..errors import DamagedMessages
    from ..reading.records import OnDamage
    from ..reading.slices import BlockSlice
    from ..security.rights import Right
    from ..selectors import Selector
    from ..service.bitmaps import View
    from ..service.nodes import Nodes
    from ..service.turn import Turn
    from .connections.capacity import Capacity
    from .connections.containers import Containers
    from .links.consuming import Consuming
    from .links.detached import Detached
    from .links.incoming import Incoming
    from .links.options import Immediate
    from .links.outgoing import Outgoing
    from .links.sender_credit import SenderCredit
    from .loop.exchanges import ExchangeRoute
    from .loop.limits import Limits
    from .transactions.registry import Open, Transactions
    from .transactions.retiring import Retirement

    Endpoint: TypeAlias = Incoming | Outgoing
    Kept: TypeAlias = Incoming | Consuming  # a link that may live on when it is detached


class Sender(Protocol):
    """A sender of messages that a pass carries out. It is told what became of them."""

    @property
    def peer(self) -> LinkPeer:
        """The connection that it sends on."""

    @property
    def session(self) -> Session:
        """The session that it sends on."""

    def confirmed(self, deliveries: list[Delivery]) -> None:
        """Hear that they are in the queue, and as safe as the queue's durability says."""

    def refused(self, deliveries: list[Delivery], error: Exception) -> None:
        """Hear that they are not in the queue, and why."""


class Loop(Protocol):
    """The loop, as links have it. Everything is for the loop's thread."""

    def enqueue(
        self, route: str | Immediate | ExchangeRoute, link: Sender, deliveries: list[Delivery], transaction: Open | None = None
    ) -> None:
        """Carry out complete deliveries for a queue, or by an exchange, in the next pass; the sender is told what became of
        them."""

    def settle(self, link: Consuming, disposition: Disposition | Retirement, deliveries: list[Delivery]) -> None:
        """Carry out the receiver's outcome for deliveries; `link.settled` is told when it holds, if the receiver waits for
        that."""

    def in_pass(self, action: Callable[[Turn], None]) -> None:
        """Carry out `action` under the broker's lock in the next pass, after the outcomes and before anybody acquires."""

    def when_durable(self, end: int, effect: Callable[[], None]) -> None:
        """Let `effect` happen when the log is durable up to `end` and every effect before it has happened; with 0, at the end of
        the pass."""

    def behind_all(self, turn: Turn, effect: Callable[[], None]) -> None:
        """Let `effect` happen behind every effect so far and all that `turn` has executed."""

    def after_all(self, effect: Callable[[], None]) -> None:
        """Let `effect` happen behind all that has been handed in."""

    def has_capacity(self, link: Outgoing, *, anyway: bool = False) -> None:
        """Let the link look for messages: it may be able to take some. One that waits for news does not look before, unless
        `anyway`."""

    def join(self, turn: Turn, link: Outgoing) -> None:
        """Let the link acquire, or browse, from here on: its holder is known."""

    def leave(self, link: Outgoing) -> None:
        """Let the link wait for nothing any more."""


class Host(Protocol):
    """The plane, as links have it: limits, the clock, other links, and what can be read of the broker."""

    limits: Limits
    nodes: Nodes
    containers: Containers
    detached: Detached
    sender_credit: SenderCredit

    def now(self) -> float:
        """Tell the time in seconds, for all time-outs of the plane."""

    def wall_ms(self) -> int:
        """Return the broker's wall-clock time, in milliseconds since 1970."""

    def call(self, function: Callable[[], None]) -> None:
        """Have the event loop call `function`, from any thread."""

    @property
    def checks_user_id(self) -> bool:
        """Say whether the property user-id of a message has to be the user who sends it."""

    def create_on_use(self, name: str, user: str) -> None:
        """Make the queue or exchange of this name, if there is none and a policy makes it with its first use."""

    def view(self, queue: str, selector: Selector) -> View:
        """Read what is known now of the messages that a selector matches, for one command."""

    def hints(self, queue: str, selector: Selector) -> list[str]:
        """Return hints for names in the selector that may be meant as fields."""

    def messages_of(self, block_slice: BlockSlice, damaged: OnDamage) -> Iterator[tuple[list[bytes], list[bytes] | Exception]]:
        """Read the messages of a slice as AMQP has them, some at a time: see `links.deliveries`."""

    def note_damage(self, damage: DamagedMessages) -> None:
        """Keep in mind that messages cannot be read, for operators."""


class LinkPeer(Protocol):
    """The connection that a link is on."""

    host: Host
    loop: Loop
    connection: Connection
    transactions: Transactions
    user: str
    identity: str | None  # of the user's record that the login was checked against
    container: str
    identifier: str
    links: dict[Link, Endpoint]
    detached: dict[Link, Kept]

    capacity: Capacity
    squeezed: dict[Session, dict[Outgoing, None]]

    @property
    def stalled(self) -> bool:
        """Say whether the socket is full."""

    def may(self, right: Right, queue: str) -> bool:
        """Say whether its user has a right."""

    @property
    def maker(self) -> Maker:
        """The maker of queues and exchanges that a link makes."""

    def log(self, text: str) -> None:
        """Write a line into the broker's log."""

    def send_soon(self) -> None:
        """Send what the protocol machine has to say, at the end of the pass."""

    def pause_reading(self) -> None:
        """Stop reading from the socket: the journal has no capacity."""

    def resume_reading(self) -> None:
        """Read again."""

    def say(self, link: Link, action: Callable[[], None]) -> None:
        """Send what the peer's limits may not allow; its session ends if they do not."""

    def awaits_attach(self, link: Link) -> bool:
        """Say whether the link's attach is not answered."""

    def refuse(self, link: Link, error: Error) -> None:
        """Answer an attach by an attach without terminus, and a detach that says why."""

    def detach(self, endpoint: Endpoint, error: Error, cause: Cause = Cause.LINK_LOST) -> None:
        """Detach a link, with the reason. Nothing happens when it has ended already. `cause`: why its messages come back."""

    def steal(self, endpoint: Endpoint, error: Error) -> None:
        """Detach a link whose name another one has now, which goes on where it was."""

    def forget(self, endpoint: Endpoint) -> None:
        """Take a link out: what is under way for it is carried out."""

    def close(self, error: Error | None, *, for_good: bool = False, cause: Cause = Cause.LINK_LOST) -> None:
        """Close the connection. `for_good`: nothing of it lives on. `cause`: why its messages come back."""

    def when_unblocked(self, session: Session, action: Callable[[], None]) -> None:
        """Act when what waits for the window of a session has left, or perhaps when a link of it ends."""
