"""The broker, as the plane has it: all that the plane may ask of it, and nothing behind.

`service.broker.BrokerService` is one.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

if TYPE_CHECKING:
    import pyarrow as pa

    from ..engine import commands as c
    from ..engine.columns.rowset import RowSet
    from ..engine.model.bindings import Binding
    from ..errors import DamagedMessages
    from ..messages.encoding.arriving import Arrived
    from ..reading.slices import BlockSlice
    from ..selectors import Selector
    from ..service.bitmaps import View
    from ..service.connections import Connections
    from ..service.histograms import Histograms
    from ..service.nodes import QueueFacts
    from ..service.routing import Prepared
    from ..service.turn import Then
    from ..settings.keys import Settings

R = TypeVar("R")


class Journal(Protocol):
    """The broker's log."""

    @property
    def end(self) -> int:
        """Log position after all that the plane has executed, or later."""

    @property
    def durable(self) -> int:
        """Log position below which everything is safe."""

    def hurry(self, end: int) -> None:
        """Have the log written up to `end`. Returns at once."""

    def write_here(self, meanwhile: Callable[[], object]) -> bool:
        """Write it from this thread, if that is quickly done: see `Journal.write_here`."""

    def add_listener(self, callback: Callable[[int], None]) -> None:
        """Let `callback(durable)` be called, by any thread, whenever more is durable."""

    def payload(self, position: int) -> pa.Buffer:
        """Return the payload of a record. Raises DamagedJournal, DataLoss, StorageError."""


class Nodes(Protocol):
    """Queues and exchanges, looked at without a turn: each answer may be old when it is read."""

    def has_queue(self, name: str) -> bool:
        """Say whether there is such a queue."""

    def has_exchange(self, name: str) -> bool:
        """Say whether there is such an exchange."""

    def there(self, names: Collection[str]) -> tuple[set[str], set[str]]:
        """Return those of the names that are queues, and those that are exchanges."""

    def staged(self, queue: str) -> int:
        """Count the messages that take part of a queue's capacity and are not in it."""

    def has_available(self, queue: str) -> bool:
        """Say whether messages of the queue are AVAILABLE."""

    def groups_held(self, queue: str) -> dict[int, list[str]]:
        """Return the message groups of a queue by the number of who holds them."""

    def minds_senders(self, exchange: str) -> bool:
        """Say whether a binding behind the exchange asks whose messages they are."""


class Matching(Protocol):
    """Matches of selectors, as far as they are evaluated."""

    def view(self, queue: str, selector: Selector) -> View:
        """Return what is known, for one command. In a turn. Raises NotFound."""

    def look_further(self, queue_name: str, selector: Selector, number: int) -> bool:
        """Evaluate the next rows of a block. Raises StorageError."""


class Damage(Protocol):
    """Messages that cannot be read."""

    def note(self, error: DamagedMessages) -> None:
        """Keep them in mind, for operators."""


class Turn(Protocol):
    """`with broker.turn() as turn`: nobody else does anything with the broker in between. What it has executed is one group of
    the log; nobody is told of it before the log is durable up to the position that comes with each reply.

    Where `then` is given, it hears the reply or the refusal of that command alone. StorageError from anything: the journal has
    failed.
    """

    def __enter__(self) -> Turn:
        """Begin."""

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        """End: see `service.turn.Turn`."""

    @property
    def end(self) -> int:
        """Log position of what the last command was decided on and left."""

    # --- commands

    def execute(self, command: c.Command[R]) -> tuple[R, int]:
        """Return a command's reply, and the log position that it waits for, 0 for none. Raises PenstockError."""

    def carry_out(self, command: c.Command[Any], then: Then) -> None:
        """Execute a command."""

    def enqueue(self, queue: str, found: Arrived, then: Then) -> None:
        """Enqueue messages that have come, of which there is at least one: the reply is `Appended`."""

    def post(self, transaction: int, queue: str, found: Arrived, then: Then) -> None:
        """Stage such messages, to be in the queue if the transaction commits."""

    def send(self, message: Prepared, then: Then) -> None:
        """Send such messages through an exchange: the reply is `Sent`."""

    # --- questions

    def available(self, queue_name: str) -> int:
        """Count the AVAILABLE messages of the queue. Raises NotFound."""

    def limited(self, queue_name: str) -> bool:
        """Say whether what is in the queue may keep out what comes."""

    def freed_by_outcomes(self, queue_name: str) -> bool:
        """Say whether the end of a message may make one available."""

    def unlocked(self, queue_name: str) -> int:
        """Count the messages of the queue that went back because a lock ended."""

    def held(self, queue_name: str, holder: int, rows: RowSet) -> RowSet:
        """Return those of the rows that this holder has."""

    def active(self, queue_name: str) -> int | None:
        """The holder that the queue gives messages to now, 0 for nobody; None where it gives to all, or is gone."""

    def has_passed_all(self, queue_name: str, holder: int) -> bool:
        """Say whether there is nothing in the queue that this link has not looked at."""

    def slices(self, queue_name: str, rows: RowSet) -> list[BlockSlice]:
        """Return a slice of each block with these messages, which are AVAILABLE or ACQUIRED. Raises NotFound, DataLoss."""

    def facts(self, queue_name: str) -> QueueFacts | None:
        """Describe a queue as a link sees it; None where there is none."""

    def has_holder(self, queue_name: str, holder: int) -> bool:
        """Say whether the queue is there, and has this link among its consumers."""

    def bindings(self, queue_name: str) -> Sequence[tuple[str, Binding]]:
        """List the bindings that lead to a queue, each with its exchange."""

    def kind_of(self, exchange: str) -> str | None:
        """Return the kind of an exchange; None where there is none."""

    def lifetime(self, node: str) -> str:
        """Return how long a queue or exchange lives; `permanent` too where there is none."""


class Broker(Protocol):
    """The broker."""

    settings: Settings

    @property
    def broker_id(self) -> str:
        """Name of the data directory."""

    @property
    def journal(self) -> Journal:
        """The log."""

    @property
    def nodes(self) -> Nodes:
        """Queues and exchanges."""

    @property
    def matching(self) -> Matching:
        """Return the matches of selectors."""

    @property
    def damage(self) -> Damage:
        """Messages that cannot be read."""

    @property
    def connections(self) -> Connections:
        """Return the place where the plane registers itself, for operators."""

    @property
    def histograms(self) -> Histograms:
        """Return the histograms."""

    def turn(self, *, hurry: bool = True) -> Turn:
        """Begin a turn, by `with`. Without `hurry` nothing forces a sync: see `Journal.hurry`."""

    def sending(
        self,
        exchange: str,
        found: Arrived,
        key: str | None,
        container: str | None,
        transaction: int | None,
    ) -> Prepared:
        """Read what the exchange's bindings have to know of messages that have come, at least one, for `Turn.send`. Without a
        `key` their subjects are their routing keys."""

    def create_on_use(self, name: str, user: str) -> None:
        """Make the queue or exchange of this name, if there is none and a policy makes it with its first use."""

    def has_space(self, nbytes: int) -> bool:
        """Say whether payloads of `nbytes` may be enqueued now. Raises ResourceLimit while the disk is nearly full."""

    def capacity_of(self, queue_name: str, usual: int = 0) -> int | None:
        """Return how many more messages the queue has capacity for: 0 if it is gone, None for any number."""

    def call_when_capacity(self, queue_name: str, callback: Callable[[], None]) -> None:
        """Let `callback` be called, once and by any thread, when the queue has capacity, or need not have any more."""

    def add_arrival_listener(self, callback: Callable[[str], None]) -> None:
        """Let `callback(queue)` be called, by any thread, whenever messages became AVAILABLE there, and when it was deleted."""

    def remove_arrival_listener(self, callback: Callable[[str], None]) -> None:
        """Undo `add_arrival_listener`."""

    def uptime_s(self) -> float:
        """Seconds of a clock that only goes forward, and not while the broker stands still."""

    def wall_ms(self) -> int:
        """Milliseconds since 1970."""
