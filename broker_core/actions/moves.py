"""The actions that alter, pause and empty a queue, and send its messages elsewhere: requests into commands, replies into answers.

A command is bounded, so that others get their turn in between: these carry out as many as it takes, and stop at what was the
queue's end when they began. What was carried out stays, whatever comes after it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from .. import errors
from ..engine import commands as c
from ..engine.columns.intervals import Intervals
from ..engine.columns.limits import MAX_MOVED, MAX_PURGED
from ..engine.model.batch_outcomes import shortened
from ..selectors import Presence, Selector, parse_optional, presence_of
from ..service.broker import BrokerService
from .browses import Browses
from .hinting import compared_hints, with_hints
from .requests import numbers

Answer = dict[str, Any]
_Command = Callable[[str, int, int, int], c.Move | c.Copy | c.Redrive]  # of queue, messages, first, last


#: Matches of a selector that one command sends back: what it names of them is looked up under the broker's lock.
MAX_CHOSEN = 10_000


def move_actions(service: BrokerService, browses: Browses) -> dict[str, Callable[[dict[str, Any]], Answer]]:
    """By name, as in `requests.ACTIONS`."""

    def alter(f: dict[str, Any]) -> Answer:
        altered = service.submit(c.AlterQueue(f["queue"], f["options"]))
        return {"queue": f["queue"], "altered": altered}

    def purge(f: dict[str, Any]) -> Answer:
        until, purged, more = _end(service, f["queue"]), 0, True
        while more:
            count = service.submit(c.Purge(f["queue"], until=until))
            purged, more = purged + count, count == MAX_PURGED
        return {"purged": purged}

    def shift(kind: type[c.Move] | type[c.Copy], said: str) -> Callable[[dict[str, Any]], Answer]:
        def carry_out(f: dict[str, Any]) -> Answer:
            count, full, _ = _in_parts(service, f, lambda q, n, first, last: kind(q, f["target"], n, first, last))
            return {said: count, "full": full}

        return carry_out

    def redrive(f: dict[str, Any]) -> Answer:
        ranges = None if f["ranges"] is None else _ranges(f["ranges"])
        selector = parse_optional(f["selector"])
        if selector is None:
            count, stayed = _redriven(service, f, ranges)
            return {"redriven": count, "stayed": stayed}
        presence = presence_of(selector)
        count, stayed = _chosen(service, browses, f, selector, ranges, presence)
        return with_hints({"redriven": count, "stayed": stayed}, compared_hints(presence))

    def discard(f: dict[str, Any]) -> Answer:
        last = f["sequence"] if f["last"] is None else f["last"]
        error = shortened(f["error"]) or "discarded by an operator"
        return {"discarded": service.submit(c.DiscardMessages(f["queue"], f["sequence"], last, error))}

    return {
        "queue.alter": alter,
        "queue.pause": lambda f: {"queue": f["queue"], "changed": service.submit(c.PauseQueue(f["queue"]))},
        "queue.resume": lambda f: {"queue": f["queue"], "changed": service.submit(c.ResumeQueue(f["queue"]))},
        "queue.purge": purge,
        "queue.move": shift(c.Move, "moved"),
        "queue.copy": shift(c.Copy, "copied"),
        "queue.redrive": redrive,
        "queue.discard": discard,
    }


def _ranges(values: list[Any]) -> tuple[int, ...]:
    if len(numbers("queue.redrive: field 'ranges'", values)) % 2:
        raise errors.InvalidRequest("queue.redrive: field 'ranges' must be pairs, the first and the last sequence number of each")
    return tuple(values)


def _redriven(service: BrokerService, f: dict[str, Any], ranges: tuple[int, ...] | None) -> tuple[int, int]:
    """Send dead letters back, of `ranges` if there are any; return how many went, and how many could not go."""
    if ranges:
        f = {**f, "first": min(ranges[::2]), "last": max(ranges[1::2])}
    count, _, stayed = _in_parts(service, f, lambda q, n, first, last: c.Redrive(q, n, first, last, ranges))
    return count, stayed


def _chosen(
    service: BrokerService,
    browses: Browses,
    f: dict[str, Any],
    selector: Selector,
    ranges: tuple[int, ...] | None,
    presence: Presence | None,
) -> tuple[int, int]:
    """Send those back that match the selector, a part at a time. What is no dead letter any more when its turn comes, stays."""
    queue, wanted = f["queue"], f["messages"]
    pairs = None if ranges is None else zip(ranges[::2], ranges[1::2], strict=True)
    asked = None if pairs is None else Intervals((first, last + 1) for first, last in pairs)
    done = stayed = 0
    for found in browses.dead_letters(queue, selector, _end(service, queue) - 1, presence):
        matches = found if asked is None else found[asked.contains(found)]
        for at in range(0, len(matches), MAX_CHOSEN):
            left = None if wanted is None else wanted - done
            if left == 0:
                return done, stayed
            chosen = tuple(np.repeat(matches[at : at + MAX_CHOSEN], 2).tolist())
            went, not_gone = _redriven(service, {"queue": queue, "messages": left}, chosen)
            done, stayed = done + went, stayed + not_gone
    return done, stayed


def _end(service: BrokerService, queue: str) -> int:
    """The sequence number that the next message will get."""
    end: int = service.submit(c.Stat(queue))[0]["nextSequence"]
    return end


def _in_parts(service: BrokerService, f: dict[str, Any], command: _Command) -> tuple[int, bool, int]:
    """Move in parts; return how many messages went, whether the target's capacity ended it, and how many could not go."""
    last, place, done, stayed = _end(service, f["queue"]) - 1, f.get("first", 0), 0, 0
    if f.get("last") is not None:
        last = min(last, f["last"])
    wanted = max(1, last + 1) if f["messages"] is None else f["messages"]  # asked once at least: a wrong target is wrong anyway
    following: int | None = place
    while following is not None and done < wanted:
        try:
            shifted = service.submit(command(f["queue"], min(MAX_MOVED, wanted - done), following, last))
        except errors.ResourceLimit:
            if not done:
                raise
            return done, True, stayed
        done, stayed, following = done + shifted.messages, stayed + shifted.stayed, shifted.next
    return done, stayed > 0, stayed
