"""The state of the broker, and its snapshot."""

from __future__ import annotations

import itertools
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from ...errors import DamagedJournal
from ..columns.attributes import NO_ATTRIBUTES, Attributes
from ..columns.blocks import Block
from ..columns.counters import add_to
from ..columns.dictionary import Names
from ..columns.group_states import GroupStates
from ..columns.intervals import NOTHING, Intervals
from ..columns.limits import CLOCK_STEP, MAX_ENDED_WRITES, MAX_TAKERS
from ..columns.packing import pack, unpack
from ..columns.rowset import BLOCK_BITS, BLOCK_ROWS
from ..columns.series import Ints
from ..columns.states import ACQUIRED
from ..columns.timetable import Timetable
from ..columns.values import from_json, to_json
from .batch_outcomes import StagedOutcomes
from .duplicates import DuplicateWindow
from .exchange import Exchange, Exchanges, LifetimeLink
from .lease import Batch, Lease
from .options import checked
from .policies import NO_POLICIES, Policies
from .publish_keys import PublishKey, PublishKeys
from .queue import Clocks, PackedBlock, Queue
from .reads import SparkBatch
from .retention import Finished
from .stages import write_of
from .transaction import Transactions

# To change the description after a release: raise the version, and let `restore` also read the earlier one, in which a new entry
# has a value that means the same.
SNAPSHOT_VERSION = 1

# Holders of rows: even numbers are batches of leases, and persisted. Odd numbers are links, which end with the broker: they begin
# at 1 after each start.
LEASE_HOLDER, LINK_HOLDER, NEXT_HOLDER = 2, 1, 2

DISCARDED = -1  # instead of a number of published messages


@dataclass
class StagedPart:
    """One journaled batch of a stage."""

    queue: str
    position: int
    count: int
    sizes: int | Ints
    attributes: Attributes = NO_ATTRIBUTES
    payload_rows: Ints | None = None  # rows of the record's payload; None: all
    exchange: str | None = None  # that routed the messages

    @property
    def bytes(self) -> int:
        return self.sizes * self.count if isinstance(self.sizes, int) else int(self.sizes.sum(dtype="int64"))

    def to_json(self) -> list[Any]:
        sizes = self.sizes if isinstance(self.sizes, int) else self.sizes.tolist()
        attributes, payload_rows = to_json(self.attributes.journaled()), to_json(self.payload_rows)
        return [self.queue, self.position, self.count, sizes, attributes, payload_rows, self.exchange]

    @classmethod
    def from_json(cls, data: list[Any]) -> StagedPart:
        queue, position, count, sizes, attributes, payload_rows, exchange = data
        sizes = sizes if isinstance(sizes, int) else np.array(sizes)
        attributes = Attributes.of_journal(from_json(attributes))
        return cls(queue, position, count, sizes, attributes, from_json(payload_rows), exchange)


@dataclass
class StageParts:
    """A stage."""

    parts: list[StagedPart] = field(default_factory=list)
    outcomes: list[StagedOutcomes] = field(default_factory=list)


@dataclass
class Write:
    """The stages of one write."""

    time: int  # microseconds since 1970 of the last addition
    stages: dict[str, None] = field(default_factory=dict)


class BrokerState:
    """`policies` and `records` come from the settings, and do not change."""

    def __init__(self, policies: Policies = NO_POLICIES, *, records: bool = False) -> None:
        # persisted
        self.time = 0  # microseconds since 1970: the latest time of an event
        self.next_holder = LEASE_HOLDER
        self.dropped = NOTHING
        self.queues: dict[str, Queue] = {}
        self.leases: dict[str, Lease] = {}
        self.past_epoch = 0  # highest epoch of deleted leases: new ones, perhaps of the same name, begin above it
        self.stages: dict[str, StageParts] = {}
        self.ended_writes: dict[str, int] = {}  # the last ones: published messages, or DISCARDED
        self.publish_keys = PublishKeys()
        self.exchanges = Exchanges()
        self.next_queue_id = 1
        self.departed: dict[int, Queue] = {}  # by id: deleted queues, until their last recording has ended
        # derived
        self.by_id: dict[int, Queue] = {}
        self.writes: dict[str, Write] = {}
        self.readers: dict[str, dict[str, int]] = {}  # Spark query → lease → batch that was read for it
        self.next_link = LINK_HOLDER
        self.policies = policies
        self.records = records  # False: there is no archive
        self.made: Counter[str] = Counter()  # by user: queues and exchanges that the user's links made
        self.links: dict[str, dict[int, LifetimeLink]] = {}  # queue or exchange → its links
        self.transactions = Transactions()
        self.nonce = ""
        self.started = 0  # `Now.up` at the start of the broker
        due, expiry, lock = (Timetable(self._has_block) for _ in range(3))
        self.clocks = Clocks(due, expiry, lock, Timetable(self._has_group_lock))
        self.expired_at = 0  # last search for expired messages: milliseconds since 1970
        self.staged_bytes = 0
        self.finished = Finished()

    def _has_block(self, queue: str, number: int) -> bool:
        known = self.queues.get(queue)
        return known is not None and number in known.blocks

    def _has_group_lock(self, queue: str, holder: int) -> bool:
        known = self.queues.get(queue)
        return known is not None and known.groups is not None and holder in known.groups.locks

    def go_on_to(self, time: int) -> None:
        """Steps of the wall clock do not age publish keys."""
        if self.time:
            self.publish_keys.skipped += max(0, time - self.time - CLOCK_STEP)
        self.time = time

    def last_published(self, key: PublishKey, wall: int) -> int | None:
        return self.publish_keys.last(key, min(wall, self.time + CLOCK_STEP))

    def uptime(self, up: int) -> int:
        """Return milliseconds since the start of the broker."""
        return (up - self.started) // 1000

    def begin_stage(self, name: str, time: int) -> StageParts:
        write = self.writes.setdefault(write_of(name), Write(time))
        write.time = time
        stage = self.stages.get(name)
        if stage is None:
            stage = self.stages[name] = StageParts()
            write.stages[name] = None
            self.ended_writes.pop(name, None)  # a single stage may be made again
        return stage

    def end_stages(self, names: Iterable[str]) -> None:
        for name in names:
            for part in self.stages.pop(name).parts:
                self.count_staged(part, -1)
            write = self.writes[write_of(name)]
            del write.stages[name]
            if not write.stages:
                del self.writes[write_of(name)]

    def stages_of(self, write: str) -> list[str]:
        known = self.writes.get(write)
        return [] if known is None else list(known.stages)

    def end_write(self, write: str, published: int) -> None:
        self.ended_writes.pop(write, None)
        self.ended_writes[write] = published
        while len(self.ended_writes) > MAX_ENDED_WRITES:
            del self.ended_writes[next(iter(self.ended_writes))]

    def note_read(self, lease: Lease, batch: Batch, reader: SparkBatch | None) -> None:
        batch.reads.note(reader)
        if reader is not None:
            self.readers.setdefault(reader.query, {})[lease.name] = batch.number

    def forget_reads(self, lease: Lease) -> None:
        batch = lease.current
        for reader in batch.reads.by if batch is not None else ():
            leases = self.readers.get(reader.query, {})
            leases.pop(lease.name, None)
            if not leases:
                self.readers.pop(reader.query, None)

    def delete_lease(self, name: str) -> None:
        self._forget_lease(self.leases.pop(name))

    def _forget_lease(self, lease: Lease) -> None:
        self.forget_reads(lease)
        self.past_epoch = max(self.past_epoch, lease.epoch)

    def read_for(self, reader: SparkBatch) -> list[tuple[Lease, Batch]]:
        """Return the unsettled batches that were read for this micro-batch."""
        batches = []
        for name in self.readers.get(reader.query, ()):
            lease = self.leases[name]
            if lease.current is not None and reader in lease.current.reads.by:
                batches.append((lease, lease.current))
        return batches

    def taker_of(self, queue: Queue, holder: int) -> str | None:
        """The link may have ended, and hold messages by open transactions."""
        subscription = queue.consumers.link(holder)
        return self.transactions.taker_of(holder) if subscription is None else subscription.taker

    def holder_name(self, queue: Queue, sequence: int) -> str | None:
        """Return the name of the link or lease that has acquired a message."""
        block, row = queue.blocks.get(sequence >> BLOCK_BITS), sequence % BLOCK_ROWS
        if block is None or sequence >= queue.next_sequence or block.state[row] != ACQUIRED:
            return None
        return self.name_of(queue, block.holder.value(row))

    def name_of(self, queue: Queue, holder: int) -> str | None:
        """Return the name of a link or lease with acquired messages."""
        leases = (lease for lease in self.leases.values() if lease.current is not None and lease.current.holder == holder)
        lease = next(leases, None) if holder % NEXT_HOLDER == LEASE_HOLDER % NEXT_HOLDER else None
        return self.taker_of(queue, holder) if lease is None else lease.taker

    def count_staged(self, part: StagedPart, sign: int) -> None:
        self.staged_bytes += sign * part.bytes
        queue = self.queues.get(part.queue)
        if queue is not None:
            _count_among(queue, part, sign)

    def add_queue(self, name: str, type_: str, options: dict[str, Any], user: str | None = None) -> Queue:
        queue = self.queues[name] = Queue(name, type_, checked(type_, options), self.clocks, user)
        self.give_id(queue)
        self.count_made(user, 1)
        for stage in self.stages.values():  # for an earlier queue of this name
            for part in stage.parts:
                if part.queue == name:
                    _count_among(queue, part, 1)
        return queue

    def lifetime_of(self, node: str) -> str:
        queue, exchange = self.queues.get(node), self.exchanges.by_name.get(node)
        return queue.rules.lifetime if queue is not None else exchange.lifetime if exchange is not None else "permanent"

    def give_id(self, queue: Queue, number: int | None = None) -> None:
        self.by_id.pop(queue.id, None)
        queue.id = self.next_queue_id if number is None else number
        self.next_queue_id = max(self.next_queue_id, queue.id + 1)
        self.by_id[queue.id] = queue

    def forget_departed(self, queue: Queue) -> None:
        if queue.id in self.departed and not queue.recordings.rows and queue.recordings.current is None:
            del self.departed[queue.id], self.by_id[queue.id]

    def delete_queue(self, name: str, *, departs: bool) -> None:
        """Stages keep messages for a later queue of this name, unless they came through its bindings."""
        queue = self.queues[name]
        for stage in self.stages.values() if queue.staged.messages else ():
            for part in stage.parts:
                if part.queue == name and part.exchange is not None:
                    self.count_staged(part, -1)
            stage.parts = [part for part in stage.parts if part.queue != name or part.exchange is None]
        del self.queues[name]
        queue.states = GroupStates()
        if departs:  # with the rows that are to be recorded
            queue.blocks = {number: block for number, block in queue.blocks.items() if block.unrecorded}
            queue.packed = {number: entry for number, entry in queue.packed.items() if entry.unrecorded}
            self.departed[queue.id] = queue
        else:
            del self.by_id[queue.id]
        self.count_made(queue.user, -1)
        self.links.pop(name, None)
        self.exchanges.forget_queue(name)
        for lease in self.leases.values():
            if lease.queue == name:
                self._forget_lease(lease)
        self.leases = {lease_name: lease for lease_name, lease in self.leases.items() if lease.queue != name}
        self.finished.remove(name)

    def count_made(self, user: str | None, change: int) -> None:
        if user is not None:
            add_to(self.made, user, change)

    def drop(self, intervals: Sequence[Sequence[int]]) -> None:
        """Also removes packed blocks that are no longer readable."""
        self.dropped = self.dropped.plus(intervals)
        self.finished.dropped(self.dropped)
        for queue in self.by_id.values():
            for entry in list(queue.packed.values()):
                is_record_gone = self.dropped.meets(entry.position, entry.position)
                if is_record_gone or self.dropped.covers(entry.lowest_payload, entry.highest_payload):
                    queue.recordings.lost(entry)
                    del queue.packed[entry.number]

    def blocks_to_pack(self, most: int) -> list[tuple[str, int]]:
        """Blocks of a current recording stay in memory."""
        ready = (entry for entry in self.finished.leaving if not self.queues[entry[0]].recordings.is_recording(entry[1]))
        return list(itertools.islice(ready, most))

    def note_finished(self, queue: Queue, block: Block) -> None:
        if block.full and not block.live:
            self.finished.add(queue.name, block, self.dropped)

    def snapshot(self) -> tuple[dict[str, Any], list[dict[str, Any]]]:
        """Return a description for JSON, and, in the order of its queues, copies of the columns of blocks and group states."""
        every = [*self.queues.values(), *self.departed.values()]
        blocks: list[dict[str, Any]] = []
        for queue in every:
            blocks += [block.persisted() for block in queue.blocks.values()]
            blocks += [queue.states.persisted()] if queue.states else []
        return {
            "v": SNAPSHOT_VERSION,
            "time": self.time,
            "holder": self.next_holder,
            "dropped": self.dropped.pairs(),
            "queues": [_described(queue) for queue in self.queues.values()],
            "departed": [_described(queue) for queue in self.departed.values()],
            "queueId": self.next_queue_id,
            "leases": [lease.to_json() for lease in self.leases.values()],
            "pastEpoch": self.past_epoch,
            "stages": {name: [part.to_json() for part in stage.parts] for name, stage in self.stages.items()},
            "outcomes": {
                name: [staged.to_json() for staged in stage.outcomes] for name, stage in self.stages.items() if stage.outcomes
            },
            "writes": {name: write.time for name, write in self.writes.items()},
            "endedWrites": list(self.ended_writes.items()),
            "publishKeys": self.publish_keys.to_json(),
            "skipped": self.publish_keys.skipped,
            "exchanges": [exchange.to_json() for exchange in self.exchanges.by_name.values()],
        }, blocks

    def _restore_queue(self, queue: Queue, fields: dict[str, Any], arrays: Iterator[Any]) -> None:
        """The next of `arrays` are those of the queue."""
        self.give_id(queue, fields["id"])
        queue.next_sequence, queue.packed_rows, queue.paused = fields["next"], fields["packedRows"], fields["paused"]
        queue.unread, queue.malformed, queue.ended = fields["unread"], fields["malformed"], fields["ended"]
        queue.packed = {entry["number"]: PackedBlock.from_json(entry) for entry in fields["packed"]}
        queue.origins, queue.takers = fields["origins"], Names(MAX_TAKERS, fields["takers"])
        queue.restore_names(fields["groups"], fields["keys"], fields["newest"])
        if "remembered" in fields:
            queue.remembered = DuplicateWindow(**from_json(fields["remembered"]))
        queue.recordings.restore(fields["recordings"])
        for entry in queue.packed.values():
            queue.recordings.adopt_packed(entry)
        for _ in range(fields["blocks"]):
            block = Block.restored(unpack(next(arrays)))
            queue.adopt(block)
            if self.queues.get(queue.name) is queue:
                self.note_finished(queue, block)
        if "states" in fields:
            queue.states = GroupStates(fields["states"], unpack(next(arrays)))

    @classmethod
    def restore(
        cls, meta: bytes, arrays: Sequence[Any], policies: Policies = NO_POLICIES, *, records: bool = False
    ) -> BrokerState:
        data = json.loads(meta)
        if data["v"] != SNAPSHOT_VERSION:
            raise DamagedJournal(
                f"a snapshot of format {data['v']}: this Penstock reads format {SNAPSHOT_VERSION}; use the version that wrote it"
            )
        state = cls(policies, records=records)
        state.time, state.next_holder, state.dropped = data["time"], data["holder"], Intervals(data["dropped"])
        packed = iter(arrays)
        for fields in data["queues"]:
            queue = state.add_queue(fields["name"], fields["type"], fields["options"], fields["user"])
            state._restore_queue(queue, fields, packed)
        for fields in data["departed"]:
            queue = Queue(fields["name"], fields["type"], fields["options"])
            state._restore_queue(queue, fields, packed)
            state.departed[queue.id] = queue
        state.next_queue_id = data["queueId"]
        state.leases = {lease["name"]: Lease.from_json(lease) for lease in data["leases"]}
        state.past_epoch = data["pastEpoch"]
        for lease in state.leases.values():
            if lease.current is not None:
                state.queues[lease.queue].consumers.begin_batch(lease.current.holder)
                for reader in lease.current.reads.by:
                    state.readers.setdefault(reader.query, {})[lease.name] = lease.current.number
        for name, parts in data["stages"].items():
            stage = state.begin_stage(name, data["writes"][write_of(name)])
            stage.parts = [StagedPart.from_json(part) for part in parts]
            for part in stage.parts:
                state.count_staged(part, 1)
        for name, outcomes in data["outcomes"].items():
            state.stages[name].outcomes = [StagedOutcomes.from_json(staged) for staged in outcomes]
        state.ended_writes = dict(data["endedWrites"])
        state.publish_keys = PublishKeys.from_json(data["publishKeys"], data["skipped"])
        for exchange in map(Exchange.from_json, data["exchanges"]):
            state.exchanges.add(exchange)
            state.count_made(exchange.user, 1)
        return state


def _described(queue: Queue) -> dict[str, Any]:
    remembered = {"remembered": to_json(queue.remembered.persisted())} if queue.remembered else {}
    states = {"states": queue.states.groups()} if queue.states else {}
    return {
        "name": queue.name,
        "id": queue.id,
        "type": queue.kind,
        "options": queue.options,
        "user": queue.user,
        "paused": queue.paused,
        "next": queue.next_sequence,
        "packedRows": queue.packed_rows,
        "recordings": queue.recordings.to_json(),
        **remembered,
        **states,
        "groups": queue.group_names.persisted(),
        "keys": queue.keys.persisted(),
        "newest": queue.newest()[1 : queue.keys.size].tolist() if queue.rules.key else [],
        "origins": list(queue.origins),
        "takers": list(queue.takers.names),
        "ended": list(queue.ended),
        "unread": queue.unread,
        "malformed": queue.malformed,
        "packed": [entry.to_json() for entry in queue.packed.values()],
        "blocks": len(queue.blocks),
    }


def _count_among(queue: Queue, part: StagedPart, sign: int) -> None:
    queue.changes += 1
    key = part.attributes.key if queue.rules.key else None
    names = [] if key is None else [key.names[code - 1] for code in key.used().tolist()]
    queue.staged.add(part.count, part.bytes, names, sign)


def packed_columns(blocks: Iterable[dict[str, Any]]) -> list[bytes]:
    return [pack(columns) for columns in blocks]
