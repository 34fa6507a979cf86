"""The rows of a browse, and its division into parts."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable
from itertools import accumulate

import numpy as np

from .. import errors
from ..engine.columns.blocks import Block
from ..engine.columns.limits import MAX_PARTS
from ..engine.columns.rowset import BLOCK_ROWS
from ..engine.columns.series import Rows
from ..engine.columns.states import Outcome, State
from ..engine.model.queue import PackedBlock
from ..service.broker import BrokerService
from .requests import BrowseRange, PlanBrowse

#: The rows of a block that a browse selects, and whether it may select rows of a packed block.
Select = Callable[[Block], Rows]
MaySelect = Callable[[PackedBlock], bool]


def plan(
    service: BrokerService, request: PlanBrowse, select: Select | None = None, packed: Callable[[PackedBlock], int] | None = None
) -> list[list[int]]:
    """Return ranges with about the same number of messages. `select` replaces the browse's selection, and `packed` the count of
    a packed block."""
    may = archived(request)
    counts = packed or (lambda entry: BLOCK_ROWS if may(entry) else 0)
    blocks = service.count_blocks(request.queue, select or selection(request), counts, request.first, request.last)
    total = sum(count for _, _, count in blocks)
    wanted = max(-(-total // request.max_messages) if request.max_messages else 1, min(request.min_partitions, total))
    if wanted > MAX_PARTS:
        raise errors.ResourceLimit(
            f"a plan has at most {MAX_PARTS} parts, this one would have {wanted}: raise maxMessagesPerPartition, or lower "
            "minPartitions"
        )
    return split(blocks, wanted)


def split(blocks: list[tuple[int, int, int]], wanted: int) -> list[list[int]]:
    """Divide blocks (first, last, messages) into `wanted` ranges of one message at least. Messages of a block count as evenly
    distributed."""
    befores = list(accumulate((count for _, _, count in blocks), initial=0))
    total, parts = befores.pop(), []
    for number in range(wanted if total else 0):
        start, end = total * number // wanted, total * (number + 1) // wanted - 1
        first = _sequence(blocks, befores, start)
        at = bisect_right(befores, end) - 1
        last = blocks[at][1] if end + 1 == befores[at] + blocks[at][2] else _sequence(blocks, befores, end + 1) - 1
        parts.append([first, last])
    return parts


def _sequence(blocks: list[tuple[int, int, int]], befores: list[int], message: int) -> int:
    """Estimate the sequence number of a message by its index. `befores`: of each block's first message."""
    at = bisect_right(befores, message) - 1
    first, last, count = blocks[at]
    return first + (message - befores[at]) * (last - first + 1) // count


def archived(request: BrowseRange) -> MaySelect:
    """A packed block has only archived rows."""
    outcome, since, until, states = _outcome(request), request.since, request.until, request.states

    def may(entry: PackedBlock) -> bool:
        return (
            "archived" in states
            and (outcome is None or int(outcome) in entry.outcomes)
            and (since is None or entry.last_time >= since)
            and (until is None or entry.first_time < until)
        )

    return may


def selection(request: BrowseRange) -> Select:
    names = {state.name.lower(): state for state in State}
    wanted = np.zeros(len(State), bool)
    for name in request.states:
        if name not in names:
            raise errors.InvalidRequest(f"browse: state {name!r} is not one of {', '.join(names)}")
        wanted[names[name]] = True
    outcome = _outcome(request)
    first, since, until = request.first, request.since, request.until
    last = request.last if request.last is not None else 2**63 - 1 - BLOCK_ROWS

    def select(block: Block) -> Rows:
        bounds = block.rows_between(first, last)
        mask = wanted[block.state[bounds]]
        if outcome is not None:
            mask &= np.asarray(block.outcome.get(bounds)) == outcome
        if since is not None or until is not None:
            starts, times = block.runs.row.array(), block.runs.time.array()
            of = np.searchsorted(starts, np.arange(bounds.start, bounds.stop), side="right") - 1
            is_between = (times >= (-(2**63) if since is None else since)) & (times < (2**63 - 1 if until is None else until))
            mask &= is_between[of]
        return bounds if mask.all() else np.flatnonzero(mask) + bounds.start

    return select


def _outcome(request: BrowseRange) -> Outcome | None:
    if request.outcome is None:
        return None
    outcomes = {o.name.lower().replace("_", "-"): o for o in Outcome if o is not Outcome.NONE}
    if request.outcome not in outcomes:
        raise errors.InvalidRequest(f"browse: outcome {request.outcome!r} is not one of {', '.join(outcomes)}")
    return outcomes[request.outcome]
