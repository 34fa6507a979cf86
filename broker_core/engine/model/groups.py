"""Message groups: one holder at a time, so that the messages of a group are processed in order.

A group is free when its holder has settled all of its messages. A *sticky* group stays with its link until the link ends or a
message closes the group (group-sequence -1). All of this is derived from the codes and holders of rows.

A link can also *lock* one group, which may have no messages. The group is free when the lock has ended and the link holds none of
its messages. A lock belongs to the name of its group, because the code of a group ends with its last message.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from ...errors import Fenced
from ..columns.dictionary import Dictionary
from ..columns.limits import LISTED_GROUPS, LOOKED_AT_GROUPS, NEVER
from ..columns.rowset import as_array
from ..columns.series import Ints, Rows
from ..columns.states import ACQUIRED

if TYPE_CHECKING:
    from ..columns.blocks import Block
    from .queue import Queue

_RANGE_BITS = 12  # messages without a group go to tasks in ranges of 2^12 sequence numbers


class GroupLock(NamedTuple):
    """The right of one link to the messages of a group."""

    group: str
    holder: int
    until: int  # milliseconds of uptime; NEVER: until its link ends
    first: int  # sequence number from which others may have passed over messages of the group


class Groups:
    """The groups of one queue by code: the holder of each, the rows that it holds, and the first row that others may wait for."""

    __slots__ = ("_closed", "_first", "_held", "_holder", "_locked", "_locks", "_sticky", "locks", "names")

    def __init__(self, names: Dictionary, sticky: bool) -> None:
        self.names = names
        self._sticky = sticky
        self._holder: npt.NDArray[np.int64] = np.zeros(8, np.int64)
        self._held: npt.NDArray[np.int64] = np.zeros(8, np.int64)
        self._first: npt.NDArray[np.int64] = np.full(8, NEVER, np.int64)
        self._closed: npt.NDArray[np.bool_] = np.zeros(8, np.bool_)
        self._locked: npt.NDArray[np.bool_] = np.zeros(8, np.bool_)
        self._locks: dict[str, GroupLock] = {}  # by group
        self.locks: dict[int, GroupLock] = {}  # by holder

    def holders(self, codes: Ints) -> npt.NDArray[np.int64]:
        """Return the holder of each group; 0: no holder. Code 0 is never held."""
        self._grow()
        holders: npt.NDArray[np.int64] = self._holder[codes]
        return holders

    def acquired(self, block: Block, rows: Rows, holder: int, behind: int = NEVER) -> None:
        """`behind`: the holder may have passed over rows of the same groups from this sequence number on."""
        codes = block.group.get(rows)
        if isinstance(codes, int):
            return
        self._grow()
        mine, counts = np.unique(codes[codes > 0], return_counts=True)
        self._held[mine] += counts
        self._holder[mine] = holder
        np.minimum.at(self._first, codes, as_array(rows) + block.base)
        if behind != NEVER:
            waited_for = mine[self.names.live(mine) > self._held[mine]]
            self._first[waited_for] = np.minimum(self._first[waited_for], behind)
        closing = block.closes.get(rows)
        if not isinstance(closing, int):
            self._closed[codes[closing > 0]] = True

    def came_back(self, block: Block, rows: Rows) -> None:
        """Note rows that are AVAILABLE again: other consumers pass them while their group is held."""
        codes = block.group.get(rows)
        if not isinstance(codes, int):
            held = self.holders(codes) != 0
            np.minimum.at(self._first, codes[held], as_array(rows)[held] + block.base)

    def let_go(self, block: Block, rows: Rows) -> int | None:
        """Remove rows from their holder's count. Returns the sequence number of the first message that others may take now, or
        None."""
        codes = block.group.get(rows)
        if isinstance(codes, int):
            return None
        mine, counts = np.unique(codes[codes > 0], return_counts=True)
        self._held[mine] -= counts
        free = mine[self._held[mine] <= 0]
        if self._sticky:
            free = free[self._closed[free] | (self._holder[free] & 1 == 0)]  # held by a lease: its next batch is another holder
        return self._release(free[~self._locked[free]])

    def left(self, holder: int) -> int | None:
        """Free the sticky groups of a link that has ended. Returns as `let_go`.

        Groups of messages that the link still holds, by open transactions, are freed with these.
        """
        mine = np.flatnonzero(self._holder == holder)
        held = self._held[mine] > 0
        self._closed[mine[held]] = True
        return self._release(mine[~held])

    def holder_of(self, name: str) -> int:
        """Return the holder of a group; 0: no holder. It may have no messages."""
        lock, code = self._locks.get(name), self.names.get(name)
        self._grow()
        return int(self._holder[code]) if lock is None else lock.holder

    def lock(self, lock: GroupLock) -> None:
        """Lock a free group, or renew a lock."""
        self._locks[lock.group] = self.locks[lock.holder] = lock
        self.arrived([lock.group])

    def arrived(self, names: Iterable[str]) -> None:
        """Assign the codes of locked groups, of which messages arrive, to their links."""
        for name in self._locks.keys() & names if self._locks else ():
            if code := self.names.get(name):
                self._grow()
                self._holder[code], self._locked[code] = self._locks[name].holder, True

    def unlock(self, holder: int) -> int | None:
        """End the lock of a link, if it has one. Returns as `let_go`."""
        lock = self.locks.pop(holder, None)
        if lock is None:
            return None
        del self._locks[lock.group]
        code = self.names.get(lock.group)
        if not code:
            return None
        self._locked[code] = False
        self._first[code] = min(int(self._first[code]), lock.first)
        return self._release(np.array([code])) if self._held[code] <= 0 else None

    def restarted(self) -> None:
        self._grow()
        self._release(np.flatnonzero((self._holder != 0) & (self._held <= 0)))
        self.forget(np.arange(1, self.names.size))

    def _release(self, codes: Ints) -> int | None:
        if not len(codes):
            return None
        first = int(self._first[codes].min())
        self._holder[codes], self._first[codes], self._closed[codes] = 0, NEVER, False
        self.forget(codes)
        return first

    def forget(self, codes: Ints) -> None:
        """Forget the names of groups without rows that no sticky link holds."""
        self._grow()
        gone = codes[(self.names.live(codes) <= 0) & ((self._holder[codes] == 0) | self._locked[codes])]
        self._holder[gone], self._first[gone], self._locked[gone], self._closed[gone] = 0, NEVER, False, False
        self.names.forget(gone)

    def held_by(self, holder: int) -> list[str]:
        return [name for code in np.flatnonzero(self._holder == holder).tolist() if (name := self.names.name(code)) is not None]

    def by_holder(self) -> dict[int, list[str]]:
        """Of very many groups, only the first are examined."""
        held = np.flatnonzero(self._holder)[:LOOKED_AT_GROUPS]
        held = held[np.argsort(self._holder[held], kind="stable")]
        holders, starts = np.unique(self._holder[held], return_index=True)
        names = self.names.name
        return {
            holder: [name for code in codes[:LISTED_GROUPS].tolist() if (name := names(code)) is not None]
            for holder, codes in zip(holders.tolist(), np.split(held, starts[1:]), strict=False)
        }

    def _grow(self) -> None:
        size = len(self._holder)
        if self.names.size > size:
            more = max(self.names.size, 2 * size) - size
            self._holder = np.concatenate([self._holder, np.zeros(more, np.int64)])
            self._held = np.concatenate([self._held, np.zeros(more, np.int64)])
            self._first = np.concatenate([self._first, np.full(more, NEVER, np.int64)])
            self._closed = np.concatenate([self._closed, np.zeros(more, np.bool_)])
            self._locked = np.concatenate([self._locked, np.zeros(more, np.bool_)])


def in_bucket(queue: Queue, block: Block, rows: Rows, bucket: int, buckets: int) -> Rows:
    """Keep the rows of one of several tasks. Rows of a group go to one task, rows without a group by ranges.

    The choice depends on the groups' names, so it is the same for all tasks of a batch, also after a restart. Raises Fenced if
    the batch no longer holds a row: its code may belong to another group then.
    """
    numbers = as_array(rows)
    if (block.state[numbers] != ACQUIRED).any():
        raise not_held(queue.name)
    codes = np.broadcast_to(block.group.get(numbers), len(numbers))
    mine: Rows = numbers[np.where(codes > 0, queue.group_names.hashes(codes), numbers >> _RANGE_BITS) % buckets == bucket]
    return mine


def not_held(queue: str) -> Fenced:
    return Fenced(
        f"messages of {queue!r} that this task should read were settled or given back after it was planned (`penstock lease "
        "release`, or the query continued without it). Their message groups are no longer known, so nothing "
        "more was read. Start the query again, or evaluate the DataFrame again: then one task reads the whole batch"
    )


class FreeGroup(NamedTuple):
    """A filter of a search: messages of groups that no other consumer holds."""

    groups: Groups
    holder: int

    def concerns(self, block: Block) -> bool:
        return block.group.values is not None

    def keep(self, block: Block, rows: Rows) -> Rows:
        numbers = as_array(rows)
        codes = block.group.get(numbers)
        assert not isinstance(codes, int)
        holders = self.groups.holders(codes)
        free: Rows = numbers[(holders == 0) | (holders == self.holder)]
        return free


class OfGroup(NamedTuple):
    """A filter of a search: messages of one group."""

    code: int | None  # None: messages of any group; 0: the group has no messages

    def concerns(self, block: Block) -> bool:
        return True

    def keep(self, block: Block, rows: Rows) -> Rows:
        numbers = as_array(rows)
        codes = np.broadcast_to(block.group.get(numbers), len(numbers))
        mine: Rows = numbers[(codes > 0) & ((codes == self.code) | (self.code is None))]
        return mine
