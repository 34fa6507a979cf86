"""One write over several brokers: the broker of each row, and the stages there.

The rows of a task go to one broker, its home. The homes of a write's tasks rotate. Rows of a message group go to the broker with
the highest hash of broker and group. So one broker holds the whole group, and most groups stay where they are when a broker is
added. Outcomes go to the broker that has their lease.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, suppress
from functools import cache, lru_cache
from hashlib import blake2b
from typing import Any

import pyarrow as pa

from ...broker_core.client.flight import Client
from ...broker_core.errors import InvalidRequest, PenstockError
from ...broker_core.messages import conversion
from ..access import BrokerAccess
from ..backoff import RECONNECT_S, answered
from ..identity import connected, identity_of
from ..options import Options
from ..sink import settlement
from ..task.batching import BATCH_BYTES, BATCH_ROWS
from ..task.context import partition

MOST_REMEMBERED = 100_000  # groups whose broker a task remembers
# Of one broker, before a task sends them: each send waits for the broker's disk.
MOST_ROWS, MOST_BYTES = 4 * BATCH_ROWS, 2 * BATCH_BYTES

Fill = Callable[[Client, Iterator[pa.RecordBatch]], int]


class Spread:
    """The brokers of a write, by id. The constructor waits `patience_s` for missing brokers. The object travels to tasks."""

    def __init__(self, options: Options, columns: Mapping[str, int], patience_s: float = 0.0) -> None:
        def ask() -> dict[str, BrokerAccess]:
            with ExitStack() as stack:
                clients = connected(options, stack)
                return {identity_of(client).broker: options.access.of(client.url).at(client.endpoint) for client in clients}

        accesses = answered(ask, patience_s)
        self._accesses: dict[str, BrokerAccess] = {broker: accesses[broker] for broker in sorted(accesses)}
        self.ids = list(self._accesses)  # in the order in which they publish
        self.settles = options["operation"] == "settle"
        names = ("delivery",) if self.settles else ("message", "groupId")
        self._deciding = next(((name, columns[name]) for name in names if name in columns), None)  # a column, and its index

    def client(self, broker: str) -> Client:
        return self._accesses[broker].client()

    def asked(self, broker: str, action: str, request: dict[str, Any], seconds: float) -> dict[str, Any]:
        def ask() -> dict[str, Any]:
            with self.client(broker) as client:
                return client.call(action, **request)

        return answered(ask, seconds)

    def url(self, broker: str) -> str:
        return self._accesses[broker].url

    def home(self, write: str, batch: int | None) -> str:
        """Return the broker of this task's rows. Each write and batch starts with another one."""
        begin = int.from_bytes(blake2b(write.partition("-")[0].encode(), digest_size=4).digest(), "big")
        return self.ids[(partition() + begin + (batch or 0)) % len(self.ids)]

    # --- In a task -----------------------------------------------------------------------------------------------------

    def is_published(self, key: dict[str, Any]) -> bool:
        """True once the write is decided: the first of its brokers has published it."""
        return any(self.asked(broker, "stage.published", key, RECONNECT_S)["published"] for broker in self.ids)

    def stage(self, batches: Iterable[pa.RecordBatch], home: str, fill: Fill) -> tuple[str, ...]:
        filled: set[str] = set()
        with ExitStack() as stack:
            connected_to = cache(lambda broker: stack.enter_context(self.client(broker)))

            def send(broker: str, rows: Iterator[pa.RecordBatch]) -> None:
                if fill(connected_to(broker), rows):
                    filled.add(broker)

            if self._deciding is None:
                send(home, iter(batches))
            else:
                self._send_divided(batches, home, send)
        return tuple(broker for broker in self.ids if broker in filled)

    def _send_divided(
        self, batches: Iterable[pa.RecordBatch], home: str, send: Callable[[str, Iterator[pa.RecordBatch]], None]
    ) -> None:
        broker_of = self._leases() if self.settles else _by_hash(self.ids)
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
        import pyarrow.compute as pc

        if not batch.num_rows or self._deciding is None:
            return
        name, index = self._deciding
        names = _DECISIONS[name](batch.column(index)).dictionary_encode()
        brokers = pa.array([self.ids.index(broker_of(name)) for name in names.dictionary.to_pylist()], pa.int32())
        numbers = pc.fill_null(brokers.take(names.indices), self.ids.index(home))
        used = pc.unique(numbers).to_pylist()
        for number in used:
            yield self.ids[number], batch if len(used) == 1 else batch.filter(pc.equal(numbers, number))

    def _leases(self) -> Callable[[str], str]:
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

    def discard_at(self, broker: str, write: str, attempts: Sequence[int] = (), timeout_s: float | None = None) -> None:
        """Discard these attempts, or without any the whole write. Errors are ignored."""
        with suppress(PenstockError), self.client(broker) as client:
            client.call("stage.discard", write=write, attempts=list(attempts), timeout_s=timeout_s)


def _by_hash(ids: Sequence[str]) -> Callable[[str], str]:
    """Return a function from a group to its broker, independent of the order of urls."""

    @lru_cache(MOST_REMEMBERED)
    def broker_of(group: str) -> str:
        return max(ids, key=lambda broker: blake2b(f"{broker} {group}".encode(), digest_size=8).digest())

    return broker_of


def _lease_names(deliveries: pa.Array) -> pa.Array:
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
    """Null for a message without a valid group."""
    return conversion.decoded(pa.record_batch({"message": messages}), ["groupId"], 0, {})["groupId"]


#: By the column, the group or lease that decides a row's broker; null: the row goes to the task's home.
_DECISIONS: dict[str, Callable[[pa.Array], pa.Array]] = {
    "delivery": _lease_names,
    "message": _groups_of,
    "groupId": lambda groups: groups.cast(pa.string()),
}
