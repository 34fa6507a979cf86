"""One write over several brokers: the broker of each row, and the stages there.

The rows of a task go to one broker, its home. The homes of a write's tasks rotate. Rows of a message group always go to the same
broker, the one with the highest hash of broker and group. So one broker holds the whole group, and most groups stay where they
are when a broker is added. Outcomes go to the broker that has their lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from hashlib import blake2b
from typing import Any

import pyarrow as pa
from pyspark.taskcontext import TaskContext

from ...broker_core.client.flight import Client
from ...broker_core.errors import InvalidRequest, PenstockError
from ...broker_core.messages import conversion
from ..access import BrokerAccess
from ..backoff import RECONNECT_S, answered
from ..identity import connected, identity_of
from ..options import Options
from ..sink import settlement
from ..task.batching import BATCH_BYTES, BATCH_ROWS

MOST_REMEMBERED = 100_000  # groups whose broker a task remembers. After that it forgets all of them.
# Rows of one broker that a task collects: each send waits for the broker's disk once.
MOST_ROWS, MOST_BYTES = 4 * BATCH_ROWS, 2 * BATCH_BYTES

Fill = Callable[[Client, Iterator[pa.RecordBatch]], int]


class Spread:
    """The brokers of a write, by id. The constructor asks for their identities, and waits `patience_s` for missing brokers.

    The object is sent to the tasks.
    """

    def __init__(self, options: Options, columns: Mapping[str, int], patience_s: float = 0.0) -> None:
        def ask() -> dict[str, BrokerAccess]:
            with ExitStack() as stack:
                clients = connected(options, stack)
                return {identity_of(client).broker: options.access.of(client.url).found_by(client) for client in clients}

        accesses = answered(ask, patience_s)
        self._accesses: dict[str, BrokerAccess] = {broker: accesses[broker] for broker in sorted(accesses)}
        settles = options["operation"] == "settle"
        self._groups = None if settles else columns.get("groupId")
        self._messages = None if settles else columns.get("message")
        self._deliveries = columns["delivery"] if settles else None

    @property
    def ids(self) -> list[str]:
        """Return the ids of the brokers, in the order in which they publish."""
        return list(self._accesses)

    @property
    def settles(self) -> bool:
        """True if the rows are outcomes."""
        return self._deliveries is not None

    def client(self, broker: str) -> Client:
        """Connect to a broker."""
        return self._accesses[broker].client()

    def asked(self, broker: str, action: str, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        """Send an idempotent request to a broker. Repeat it while no answer comes, `seconds` in total."""

        def ask() -> dict[str, Any]:
            with self.client(broker) as client:
                return client.call(action, **request)

        return answered(ask, seconds)

    def url(self, broker: str) -> str:
        """Return the url of a broker."""
        return self._accesses[broker].url

    def home(self, write: str, batch: int | None) -> str:
        """Return the broker of this task's rows. Each write and each batch starts with another broker."""
        context = TaskContext.get()
        task = 0 if context is None else context.partitionId()
        begin = int.from_bytes(blake2b(write.partition("-")[0].encode(), digest_size=4).digest(), "big")
        return self.ids[(task + begin + (batch or 0)) % len(self.ids)]

    # --- In a task -----------------------------------------------------------------------------------------------------

    def is_published(self, key: dict[str, Any]) -> bool:
        """Ask whether the write has been decided: then at least the first of its brokers has published it."""
        return any(self.asked(broker, "stage.published", key, RECONNECT_S)["published"] for broker in self.ids)

    def stage(self, batches: Iterable[pa.RecordBatch], home: str, fill: Fill) -> tuple[str, ...]:
        """Send each row to its broker; return the brokers that now have a stage."""
        filled: set[str] = set()
        with ExitStack() as stack:
            clients: dict[str, Client] = {}

            def send(broker: str, rows: Iterator[pa.RecordBatch]) -> None:
                if broker not in clients:
                    clients[broker] = stack.enter_context(self.client(broker))
                if fill(clients[broker], rows):
                    filled.add(broker)

            if self._groups is None and self._messages is None and self._deliveries is None:
                send(home, iter(batches))
            else:
                self._send_divided(batches, home, send)
        return tuple(broker for broker in self.ids if broker in filled)

    def _send_divided(
        self, batches: Iterable[pa.RecordBatch], home: str, send: Callable[[str, Iterator[pa.RecordBatch]], None]
    ) -> None:
        broker_of = _Brokers(self.ids) if self._deliveries is None else self._leases()
        waiting: dict[str, list[pa.RecordBatch]] = {broker: [] for broker in self.ids}
        for batch in batches:
            for broker, rows in self._divided(batch, home, broker_of):
                mine = waiting[broker]
                mine.append(rows)
                if sum(part.num_rows for part in mine) >= MOST_ROWS or sum(part.nbytes for part in mine) >= MOST_BYTES:
                    waiting[broker] = []
                    send(broker, iter(mine))
        for broker, rest in waiting.items():
            if rest:
                send(broker, iter(rest))

    def _divided(self, batch: pa.RecordBatch, home: str, broker_of: Callable[[str], str]) -> Iterator[tuple[str, pa.RecordBatch]]:
        """Yield the rows of each broker, in their order."""
        import pyarrow.compute as pc

        if not batch.num_rows:
            return
        names = self._names(batch).dictionary_encode()
        brokers = pa.array([self.ids.index(broker_of(name)) for name in names.dictionary.to_pylist()], pa.int32())
        numbers = pc.fill_null(brokers.take(names.indices), self.ids.index(home))
        used = pc.unique(numbers).to_pylist()
        for number in used:
            yield self.ids[number], batch if len(used) == 1 else batch.filter(pc.equal(numbers, number))

    def _names(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the group or lease that decides the broker of each row; null: the task decides."""
        if self._deliveries is not None:
            return _lease_names(batch.column(self._deliveries))
        if self._messages is not None:
            return _groups_of(batch.column(self._messages))
        return batch.column(self._groups).cast(pa.string())

    def _leases(self) -> Callable[[str], str]:
        """Return a function from a lease to its broker."""
        at: dict[str, list[str]] = {}
        for broker in self.ids:
            with self.client(broker) as client:
                for lease in client.call("lease.list")["leases"]:
                    at.setdefault(lease["lease"], []).append(broker)

        def find(lease: str) -> str:
            brokers = at.get(lease, self.ids[:1])  # the first broker reports that the lease is missing
            if len(brokers) > 1:
                raise InvalidRequest(
                    f"lease {lease!r} is at several brokers, and a delivery does not name its broker. Leave the option lease out"
                    " of the stream (then each lease has its own name), or settle at each broker separately"
                )
            return brokers[0]

        return find

    # --- Afterwards ----------------------------------------------------------------------------------------------------

    def discard(self, write: str, attempts: Sequence[int], timeout_s: float) -> None:
        """Discard these attempts, or the whole write, at all brokers. Errors are ignored."""
        for broker in self.ids:
            self.discard_at(broker, write, attempts, timeout_s)

    def discard_at(self, broker: str, write: str, attempts: Sequence[int] = (), timeout_s: float | None = None) -> None:
        """Discard these attempts, or the whole write, at one broker. Errors are ignored."""
        with suppress(PenstockError), self.client(broker) as client:
            client.call("stage.discard", write=write, attempts=list(attempts), timeout_s=timeout_s)


class _Brokers:
    """Function from a message group to its broker, independent of the order of the urls."""

    def __init__(self, ids: Sequence[str]) -> None:
        self._ids = ids
        self._known: dict[str, str] = {}

    def __call__(self, group: str) -> str:
        chosen = self._known.get(group)
        if chosen is None:
            if len(self._known) >= MOST_REMEMBERED:
                self._known.clear()
            chosen = self._known[group] = max(self._ids, key=lambda broker: _weight(broker, group))
        return chosen


def _weight(broker: str, group: str) -> bytes:
    return blake2b(f"{broker} {group}".encode(), digest_size=8).digest()


def _lease_names(deliveries: pa.Array) -> pa.Array:
    """Return the lease of each row; null for a null."""
    import pyarrow.compute as pc

    names = pa.nulls(len(deliveries), pa.string())
    left = pc.is_valid(deliveries)
    while (row := pc.index(left, True).as_py()) >= 0:
        head, name = settlement.lease_of(deliveries[row].as_py())
        mine = pc.and_(left, pc.fill_null(pc.starts_with(deliveries, head), False))
        names = pc.if_else(mine, name, names)
        left = pc.and_(left, pc.invert(mine))
    return names


def _groups_of(messages: pa.Array) -> pa.Array:
    """Return the group of each encoded message; null without a group, or if the message is invalid."""
    return conversion.decoded(pa.record_batch({"message": messages}), ["groupId"], 0, {})["groupId"]
