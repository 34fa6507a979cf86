"""Invariants of a broker and its AMQP plane, for all clients: each check yields the errors that it finds.

All except `left_behind` hold while the broker is idle. So `look` checks them in the plane's thread, under the broker's lock.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from typing import Any, TypeVar

import numpy as np

from penstock.broker_core.amqp_plane.links.outgoing_link import OutgoingLink
from penstock.broker_core.amqp_plane.links.waiting_list import WaitingList
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import decide
from penstock.broker_core.engine.columns.states import State
from penstock.broker_core.engine.model.admission import capacity_left
from penstock.broker_core.engine.model.queue import Queue

from ..engine.conservation import conserved
from .harness import Stage
from .library_client import PATIENCE_S

Found = TypeVar("Found")


def look(stage: Stage, at: Callable[[Stage, c.Now], Found]) -> Found:
    """Return the result of `at` for one moment in which the broker is idle."""
    outcome: Future[Found] = Future()

    def take() -> None:
        try:
            with stage.service.turn() as turn:
                outcome.set_result(at(stage, turn._now))
        except BaseException as error:
            outcome.set_exception(error)

    stage.plane.call(take)
    return outcome.result(PATIENCE_S)


# --- no link waits for available messages


def waits_in_vain(stage: Stage, now: c.Now) -> str | None:
    """Find waits without a reason: of a receiver (C4), a drain (C5), a sender (Q15), a line (C9)."""
    return next((wrong for check in WAITS for wrong in check(stage, now)), None)


def idle_receivers(stage: Stage, now: c.Now) -> Iterator[str]:
    for link in _consumers(stage):
        view = None if link.selector is None else stage.service.matching.view(link.queue, link.selector)
        rows = decide(stage.service.state, c.Acquire(link.queue, link.holder, 1, None, view), now).reply.rows
        if rows.count:
            yield f"{link} has a capacity of {link.capacity()} and could have {rows.sequences()}: it stands as {link.standing}"


def unanswered_drains(stage: Stage, now: c.Now) -> Iterator[str]:
    return (f"{link} waits for its drain" for link in _consumers(stage) if link.link.drain and link._asked)


def _consumers(stage: Stage) -> list[OutgoingLink]:
    """Return consumers that could take messages."""
    queues = stage.service.state.queues
    links = [link for interest in stage.plane.commit_loop.acquisitions._queues.values() for link in interest.members.values()]
    return [
        link
        for link in links
        if link.acquires
        and link.queue in queues
        and link.holder in queues[link.queue].consumers.subscriptions
        and link.capacity() > 0
    ]


def starving_senders(stage: Stage, now: c.Now) -> Iterator[str]:
    blocking = stage.plane.sender_credit
    for name, waiting in blocking._waiting.items():
        queue = stage.service.state.queues.get(name)
        free = capacity_left(queue) if queue is not None else None
        promised = blocking._totals.get(name, 0)
        for who in waiting if free else ():
            if isinstance(who, WaitingList):
                if who._waiting and not who._underway and promised < free:  # type: ignore[operator]
                    yield f"{len(who._waiting)} messages wait in a line for {name!r}, which has room for {free}"
            elif not promised and not who.link.link_credit and not who._unconfirmed:  # type: ignore[attr-defined]
                yield f"{who} has no credit, and {name!r} has room for {free}"


WAITS = (idle_receivers, unanswered_drains, starving_senders)


# --- the counts equal the columns


def miscounted(stage: Stage, now: c.Now) -> list[str]:
    """Compare all counts with the columns: messages, bytes, levels, holders, groups, stages, and those of each connection."""
    state = stage.service.state
    staged = Counter({part.queue: 0 for parts in state.stages.values() for part in parts.parts})
    for parts in state.stages.values():
        staged.update({part.queue: 0 for part in parts.parts})
        for part in parts.parts:
            staged[part.queue] += part.count
    wrong = []
    for queue in state.queues.values():
        compared = [
            ("staged messages", queue.staged.messages, staged[queue.name]),
            *_bytes(queue),
            *_levels(queue),
            *_holdings(queue),
        ]
        wrong += [f"{queue.name}: {name} {count}, not {true}" for name, count, true in compared if count != true]
        if not conserved(queue):
            wrong.append(f"{queue.name}: messages are lost or invented")
        wrong += [f"{queue.name}: group {code} has no holder" for code in _ownerless(queue)]
    for peer in (wire.peer for wire in stage.plane._accepted if wire.peer is not None):
        true = sum(map(peer.capacity.held_in, peer.connection.sessions.values()))
        if peer.capacity.held != true:
            wrong.append(f"{peer}: {peer.capacity.held} held, not {true}")
    return wrong


Compared = Iterator[tuple[str, Any, Any]]  # subject, kept value, actual value


def _bytes(queue: Queue) -> Compared:
    sizes, states = _column(queue, "sizes"), _column(queue, "state")
    yield "available bytes", queue.available_bytes, int(sizes[states == State.AVAILABLE].sum())
    yield "bytes", queue.bytes, int(sizes[states != State.ARCHIVED].sum())
    yield "bytes of overlays", queue.overlay_bytes, sum(block.overlays.bytes for block in queue.blocks.values())


def _levels(queue: Queue) -> Compared:
    levels = Counter(_column(queue, "level")[_column(queue, "state") == State.AVAILABLE].tolist())
    for level, waiting in enumerate(queue.waiting):
        yield f"available of level {level}", waiting.total, levels[level]


def _holdings(queue: Queue) -> Compared:
    for number, subscription in queue.consumers.subscriptions.items():
        for block in queue.blocks.values():
            mine = (_rows(block, "state") == State.ACQUIRED) & (_rows(block, "holder") == number)
            yield f"held by {number}", subscription.held.get(block.number, 0), int(mine.sum())
    if queue.groups is not None:
        held = _held_groups(queue)
        queue.groups._grow()
        for code, count in enumerate(queue.groups._held):
            yield f"held of group {code}", int(count), held[code] if code else int(count)


def _ownerless(queue: Queue) -> list[int]:
    return [code for code in _held_groups(queue) if not queue.groups._holder[code]] if queue.groups is not None else []


def _held_groups(queue: Queue) -> Counter[int]:
    codes = _column(queue, "group")[_column(queue, "state") == State.ACQUIRED]
    return Counter(code for code in codes.tolist() if code)


def _column(queue: Queue, name: str) -> Any:
    return np.concatenate([np.zeros(0, np.int64), *(_rows(block, name) for block in queue.blocks.values())])


def _rows(block: Any, name: str) -> Any:
    column = getattr(block, name)
    if column is None:
        return np.zeros(block.filled, np.int64)
    rows = column[: block.filled] if isinstance(column, np.ndarray) else column.get(slice(0, block.filled))
    return np.broadcast_to(rows, block.filled)


# --- no state of ended clients


def left_behind(stage: Stage, now: c.Now) -> dict[str, Any]:
    """Find remains of clients while no client is connected (C8, E2)."""
    residue = {**_left_in_the_engine(stage.service.state), **_left_in_the_plane(stage.plane)}
    return {name: left for name, left in residue.items() if left}


def _left_in_the_engine(state: Any) -> dict[str, Any]:
    queues = state.queues.values()
    grouped = [queue for queue in queues if queue.groups is not None]
    return {
        "transactions": [*state.transactions.open, *state.transactions._holders, *state.transactions.by_owner],
        "stages": [*state.stages],
        "staged bytes": state.staged_bytes,
        "links": [*state.links],
        "subscriptions": [queue.name for queue in queues if queue.consumers.subscriptions],
        "held": [queue.name for queue in queues if queue.counts[State.ACQUIRED]],
        "groups": [queue.name for queue in grouped if queue.groups._holder.any()],
        "exclusive": [queue.name for queue in queues if queue.consumers._exclusive],
        "active": [queue.name for queue in queues if queue.consumers.active],
        "queues": [queue.name for queue in queues if queue.name.startswith(("temp:", "shared:")) and not _stays(queue)],
        "exchanges": [name for name in state.exchanges.by_name if name.startswith("temp:")],
    }


def _stays(queue: Queue) -> bool:
    """Say whether a generated queue stays until it is empty."""
    return queue.rules.lifetime in ("empty", "unusedOrEmpty") and queue.live > 0


def _left_in_the_plane(plane: Any) -> dict[str, Any]:
    blocking, passes = plane.sender_credit, plane.commit_loop
    return {
        "credit": [*blocking._granted, *blocking._totals],
        "senders that wait": [*blocking._waiting],
        "lines": [*blocking.waiting_lists],
        "bytes in lines": blocking.waiting_bytes,
        "users with bytes in lines": [*blocking.waiting_bytes_of],
        "senders that settle second": [*blocking._claims, *blocking._claimed],
        "receivers": [*passes.acquisitions._queues],
        "receivers that wait": [*passes.acquisitions.evaluation._waiting],
        "deliveries": [*passes._batch._messages, *passes._immediate],
        "clients held up": [*passes._batch._paused],
    }
