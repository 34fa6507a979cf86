"""Admission of arriving messages: duplicates are dropped, and messages beyond the queue's limits are refused.

New messages drop or replace older ones when they are stored: see `events.transitions`.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

import numpy as np

from ... import errors
from ..columns.attributes import Attributes, Coded
from ..columns.dictionary import Dictionary
from ..columns.limits import MAX_GROUPS
from ..columns.series import Ints
from ..columns.states import State
from .queue import Queue

NONE: Ints = np.zeros(0, np.int64)


class NamesFull(errors.QueueFull):
    """The queue has its maximum of keys or groups."""


class Candidates(NamedTuple):
    """Messages that ask for admission."""

    messages: int
    sizes: int | Ints  # stored bytes: a number for all messages, or one for each
    attributes: Attributes

    def take(self, rows: Ints) -> Candidates:
        sizes = self.sizes if isinstance(self.sizes, int) else self.sizes[rows]
        return Candidates(len(rows), sizes, self.attributes.take(rows))


class Admission(NamedTuple):
    """Result of the check of candidates."""

    rows: Ints | None = None  # indexes of admitted messages, ascending; None: all
    refused: Ints = NONE
    duplicates: int = 0


def admit(queue: Queue, candidates: Candidates, now: int, *, whole: bool = False, held: bool = False) -> Admission:
    """`now`: milliseconds since 1970. `whole`: raise QueueFull if some messages are refused. `held`: links acquire the messages
    as they arrive, so a ring cannot drop them for the next ones."""
    count, sizes, attributes = candidates
    rows = np.arange(count)
    if attributes.ids is not None and queue.rules.duplicate_window:
        rows = rows[fresh(queue, attributes.ids, now)]
    duplicates = count - len(rows)
    fits = _within_names(queue, attributes, rows)
    if whole and not fits.all():
        raise full(queue, len(rows), NamesFull)
    if whole or queue.rules.overflow != "block":
        named = rows[fits]
        stays = np.ones(len(named), np.int64) if whole or held else _stays(queue, attributes, named, now)
        fits[fits] = _within_limits(queue, sizes if isinstance(sizes, int) else sizes[named], stays)
    if whole and not fits.all():
        raise full(queue, len(rows), together=sizes if isinstance(sizes, int) else sizes[rows])
    admitted, refused = rows[fits], rows[~fits]
    if duplicates and len(refused):  # a duplicate of a refused message is refused, because neither is stored
        assert attributes.ids is not None
        dropped = np.delete(np.arange(count), rows)
        again = dropped[np.isin(attributes.ids[dropped], attributes.ids[refused])]
        refused, duplicates = np.sort(np.concatenate([refused, again])), duplicates - len(again)
    return Admission(None if len(admitted) == count else admitted, refused, duplicates)


def admit_stage(queue: Queue, candidates: Candidates) -> None:
    """Raise QueueFull unless all messages fit, so that a publish never blocks. The publish finds duplicates."""
    if queue.rules.unrestricted:
        return
    count, sizes, attributes = candidates
    if not _within_names(queue, attributes, np.arange(count)).all():
        raise full(queue, count, NamesFull)
    if not _within_limits(queue, sizes, np.ones(count, np.int64)).all():
        raise full(queue, count, together=sizes)


def capacity_left(queue: Queue, usual: int = 0) -> int | None:
    """Return a number of messages; None: no limit. Bytes are divided by the mean size of the queue's messages, and rounded up.
    `usual`: the mean for an empty queue; with 0, the result is 1."""
    rules = queue.rules
    if rules.overflow != "block" or not (rules.max_messages or rules.max_bytes):
        return None
    left, (messages, size) = [], queue.occupied
    if rules.max_messages:
        left.append(rules.max_messages - messages)
    if rules.max_bytes:
        counted, sized = (messages, size) if size else (1, usual or rules.max_bytes)
        left.append(-(-(rules.max_bytes - size) * counted // sized))
    return max(0, min(left))


def fill(queue: Queue) -> int | None:
    """Return how much of its limits a queue has used up, in thousandths; None: no limit."""
    messages, size = _taken(queue)
    limits = (messages, queue.rules.max_messages), (size, queue.rules.max_bytes)
    return max((1000 * used // most for used, most in limits if most), default=None)


def _taken(queue: Queue) -> tuple[int, int]:
    """Return the messages and bytes that new ones cannot displace. A ring drops AVAILABLE messages."""
    messages, size = queue.occupied
    if queue.rules.overflow != "ring":
        return messages, size
    return messages - queue.counts[State.AVAILABLE], size - queue.available_bytes


def may_wait(queue: Queue, messages: int, size: int) -> bool:
    """Return True if the queue blocks, and could ever hold so much."""
    return queue.rules.overflow == "block" and _fits_if_empty(queue, messages, size)


def _fits_if_empty(queue: Queue, messages: int, size: int) -> bool:
    rules = queue.rules
    return messages <= (rules.max_messages or messages) and size <= (rules.max_bytes or size)


def must_wait(queue: Queue, messages: int, size: int) -> bool:
    rules, (taken, taken_bytes) = queue.rules, queue.occupied
    is_full = 0 < rules.max_messages < taken + messages or 0 < rules.max_bytes < taken_bytes + size
    return is_full and may_wait(queue, messages, size)


def fresh(queue: Queue, ids: Ints, now: int) -> Ints:
    age = queue.rules.duplicate_time
    return queue.remembered.fresh(ids, max(0, now - age) if age else 0)  # a clock may be set to 1970


def full(
    queue: Queue, count: int, kind: type[errors.QueueFull] = errors.QueueFull, together: int | Ints | None = None
) -> errors.QueueFull:
    """`together`: sizes of messages that are stored together or not at all."""
    size = 0 if together is None else together * count if isinstance(together, int) else int(together.sum(dtype=np.int64))
    way_out = "drain it"
    if together is not None and not _fits_if_empty(queue, count, size):  # a ring drops no message of the same batch
        way_out = f"they have {size} bytes and never fit together: send fewer at a time" if count > 1 else "send a smaller one"
    rules = queue.rules
    limits = [f"{rules.max_messages} messages"] * bool(rules.max_messages) + [f"{rules.max_bytes} bytes"] * bool(rules.max_bytes)
    names = [f"{rules.max_keys} keys"] * bool(rules.key) + [f"{MAX_GROUPS} groups"] * (rules.groups != "none")
    error = kind(
        f"queue {queue.name!r} has no room for {count} more: it has {queue.live} messages of {queue.bytes} bytes, "
        f"{queue.staged.messages} more staged, and a limit of {' and '.join(limits + names)}. Nothing was stored; {way_out}, or "
        "raise the limit (`penstock queue alter`)"
    )
    error.queue, error.messages = queue.name, count
    return error


def _within_limits(queue: Queue, sizes: int | Ints, stays: Ints) -> Ints:
    """`stays`: 1 if the message uses capacity that the next ones cannot have.

    A message that would not fit alone takes no capacity from the others.
    """
    rules, (taken, taken_bytes) = queue.rules, _taken(queue)
    size_of = np.broadcast_to(np.asarray(sizes, np.int64), len(stays))
    fits = taken_bytes + size_of <= rules.max_bytes if rules.max_bytes else np.ones(len(stays), np.bool_)
    stays = stays * fits
    if rules.max_messages:
        fits &= taken + np.cumsum(stays) - stays + 1 <= rules.max_messages
    if rules.max_bytes:
        fits &= taken_bytes + np.cumsum(stays * size_of) - stays * size_of + size_of <= rules.max_bytes
    return fits


def _stays(queue: Queue, attributes: Attributes, rows: Ints, now: int) -> Ints:
    """In a ring, the next messages can drop all due ones."""
    if queue.rules.overflow != "ring":
        return np.ones(len(rows), np.int64)
    return np.zeros(len(rows), np.int64) if attributes.due is None else (attributes.due[rows] > now).astype(np.int64)


def _within_names(queue: Queue, attributes: Attributes, rows: Ints) -> Ints:
    fits = np.ones(len(rows), np.bool_)
    if attributes.group is not None:
        fits &= _known(attributes.group, queue.group_names, {}, MAX_GROUPS)[rows]
    if attributes.key is not None:
        fits &= within_keys(queue, attributes.key)[rows]
    return fits


def within_keys(queue: Queue, keys: Coded) -> Ints:
    return _known(keys, queue.keys, queue.staged.keys, queue.rules.max_keys)


def _known(coded: Coded, dictionary: Dictionary, staged: Collection[str], most: int) -> Ints:
    """Return by message whether its name is known, or fits as a new one."""
    allowed = np.ones(len(coded.names) + 1, np.bool_)
    if len(dictionary) + len(staged) + len(coded.names) > most:
        names = [(code, coded.names[code - 1]) for code in coded.used().tolist()]
        new = np.array([code for code, name in names if name not in staged and not dictionary.get(name)], np.int64)
        taken = len(dictionary) + sum(not dictionary.get(name) for name in staged)
        allowed[new[max(0, most - taken) :]] = False
    fits: Ints = allowed[coded.codes]
    return fits
