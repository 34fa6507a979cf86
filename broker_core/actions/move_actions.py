"""Actions that move, copy and redrive messages.

Commands are bounded, so that other callers get the lock in between. An action repeats them up to the end of the queue when it
began. If a command fails, the earlier ones stay.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Annotated, NamedTuple

import numpy as np

from .. import errors
from ..engine import commands as c
from ..engine.columns.intervals import Intervals
from ..engine.columns.limits import MAX_MOVED
from ..engine.columns.states import Reason
from ..selectors import Selector, parse_optional, presence_of
from ..service.broker import BrokerService
from .declaration import ActionCall, Reply, action, compared_hints, with_hints
from .fields import About
from .permissions import BROWSE, admin, move_needs, redrive_needs
from .requests import MessageLimit, OfQueue
from .requests import Selector as SelectorText
from .schemas import BOOL, COUNT, TEXT, list_of, object_of

_Command = Callable[[int, int, int], c.Move | c.Copy | c.Redrive]  # of messages, first, last

MAX_CHOSEN = 10_000  # matches of a selector in one command, which are looked up under the broker's lock


@dataclass(frozen=True, kw_only=True)
class _Move(OfQueue):
    messages: MessageLimit = None
    first: Annotated[int, About("sequence number of the first message, included", least=0)] = 0
    last: Annotated[int | None, About("sequence number of the last message, included; null: no end", least=0)] = None
    target: Annotated[str, About("queue to which the messages go")]


@dataclass(frozen=True, kw_only=True)
class _Redrive(OfQueue):
    messages: MessageLimit = None
    ranges: Annotated[list[int] | None, About("sequence numbers in pairs: first, last, first, last …; null: all")] = None
    selector: SelectorText = None
    reason: Annotated[str | None, About("reason of the dead letters, such as rejected; null: any")] = None
    error: Annotated[str | None, About("their whole error text, with a reason; empty: none; null: any")] = None


@dataclass(frozen=True, kw_only=True)
class _DeadLetters(OfQueue):
    count: Annotated[int, About("how many groups to return", least=1)] = 100


class MoveTotal(NamedTuple):
    """The sum of several commands."""

    messages: int
    stayed: int  # dead letters that could not be sent back
    is_target_full: bool = False


@action("queue.move", admin("move messages of"), object_of(moved=COUNT, full=BOOL), needs=move_needs)
def _move(call: ActionCall, request: _Move) -> Reply:
    """Moves messages without a holder to another queue, in order."""
    shifted = _shift(call.service, request, partial(c.Move, user=call.caller.known_user))
    return {"moved": shifted.messages, "full": shifted.is_target_full}


@action("queue.copy", admin("copy messages of"), object_of(copied=COUNT, full=BOOL), needs=move_needs)
def _copy(call: ActionCall, request: _Move) -> Reply:
    """Copies messages without a holder to another queue, in order."""
    shifted = _shift(call.service, request, c.Copy)
    return {"copied": shifted.messages, "full": shifted.is_target_full}


@action(
    "queue.redrive",
    admin("redrive"),
    object_of(("hints",), redriven=COUNT, stayed=COUNT, hints=list_of(TEXT)),
    needs=redrive_needs,
)
def _redrive(call: ActionCall, request: _Redrive) -> Reply:
    """Returns dead letters to their original queues."""
    ranges = None if request.ranges is None else tuple(request.ranges)
    if ranges is not None and len(ranges) % 2:
        raise errors.InvalidRequest("queue.redrive: field 'ranges' must be pairs, the first and the last sequence number of each")
    selector, group = parse_optional(request.selector), _group(request)
    if selector is None:
        shifted = _redrive_ranges(call, request.queue, request.messages, ranges, group)
        return {"redriven": shifted.messages, "stayed": shifted.stayed}
    return _redrive_matches(call, request, selector, ranges)


def _group(request: _Redrive) -> c.DeathGroup | None:
    if request.reason is None:
        if request.error is not None:
            raise errors.InvalidRequest("queue.redrive: field 'error' needs a 'reason'")
        return None
    reasons = {reason.name.lower(): reason for reason in Reason if reason is not Reason.NONE}
    if request.reason not in reasons:
        raise errors.InvalidRequest(f"queue.redrive: field 'reason' must be {', '.join(reasons)}, not {request.reason!r:.80}")
    return c.DeathGroup(reasons[request.reason], request.error)


@action(
    "queue.deadLetters",
    BROWSE,
    object_of(groups=list_of(object_of(reason=TEXT, error=TEXT, messages=COUNT)), others=COUNT),
    reads=True,
)
def _dead_letters(call: ActionCall, request: _DeadLetters) -> Reply:
    """Counts the dead letters of a queue by reason and error text, largest first."""
    next_sequence(call.service, request.queue)  # refuses a missing queue
    groups = call.service.counts.death_groups(request.queue).most_common()
    shown = [{"reason": reason, "error": error, "messages": count} for (reason, error), count in groups[: request.count]]
    return {"groups": shown, "others": sum(count for _, count in groups[request.count :])}


def _redrive_matches(call: ActionCall, request: _Redrive, selector: Selector, ranges: tuple[int, ...] | None) -> Reply:
    """A message stays if it is no longer a dead letter when its part is sent."""
    queue, presence = request.queue, presence_of(selector)
    pairs = None if ranges is None else zip(ranges[::2], ranges[1::2], strict=True)
    wanted = None if pairs is None else Intervals((first, last + 1) for first, last in pairs)
    redriven = stayed = 0
    for sequences in call.browses.dead_letters(queue, selector, next_sequence(call.service, queue) - 1, presence):
        matches = sequences if wanted is None else sequences[wanted.contains(sequences)]
        for start in range(0, len(matches), MAX_CHOSEN):
            left = None if request.messages is None else request.messages - redriven
            if left == 0:
                break
            chosen = tuple(np.repeat(matches[start : start + MAX_CHOSEN], 2).tolist())
            shifted = _redrive_ranges(call, queue, left, chosen, _group(request))
            redriven, stayed = redriven + shifted.messages, stayed + shifted.stayed
        if redriven == request.messages:
            break
    return with_hints({"redriven": redriven, "stayed": stayed}, compared_hints(presence))


def _redrive_ranges(
    call: ActionCall, queue: str, messages: int | None, ranges: tuple[int, ...] | None, group: c.DeathGroup | None
) -> MoveTotal:
    first, last = (min(ranges[::2]), max(ranges[1::2])) if ranges else (0, None)
    command = partial(c.Redrive, queue, ranges=ranges, group=group, user=call.caller.known_user)
    return _in_parts(call.service, queue, messages, first, last, command)


def _shift(service: BrokerService, request: _Move, kind: Callable[..., c.Move | c.Copy]) -> MoveTotal:
    command = partial(kind, request.queue, request.target)
    return _in_parts(service, request.queue, request.messages, request.first, request.last, command)


def next_sequence(service: BrokerService, queue: str) -> int:
    end: int = service.submit(c.Stat(queue))[0]["nextSequence"]
    return end


def _in_parts(service: BrokerService, queue: str, most: int | None, first: int, last: int | None, command: _Command) -> MoveTotal:
    end = next_sequence(service, queue) - 1
    if last is not None:
        end = min(end, last)
    if most is None:
        most = max(1, end + 1)  # at least one command checks the target
    messages = stayed = 0
    following: int | None = first
    while following is not None and messages < most:
        try:
            shifted = service.submit(command(min(MAX_MOVED, most - messages), following, end))
        except errors.ResourceLimit:
            if not messages:
                raise
            return MoveTotal(messages, stayed, True)
        messages, stayed, following = messages + shifted.messages, stayed + shifted.stayed, shifted.next
    return MoveTotal(messages, stayed, stayed > 0)
