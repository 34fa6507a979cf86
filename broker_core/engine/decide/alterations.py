"""Decisions that alter, pause and resume a living queue (Q21)."""

from __future__ import annotations

from typing import Any

from ... import errors
from ..commands import moves as mc
from ..commands import queues as c
from ..events import moves as me
from ..model.options import OPTIONS, check_names, checked
from ..model.queue import Queue
from ..model.state import BrokerState
from .decision import Decision, need_queue


def alter_queue(state: BrokerState, command: mc.AlterQueue, now: c.Now) -> Decision[bool]:
    """Change alterable options; nothing where none differs. Raises NotFound, InvalidRequest for one that is fixed."""
    queue = need_queue(state, command.queue)
    check_names(command.options)
    options = checked(queue.kind, {**queue.options, **command.options})
    changed = {name: options.get(name) for name in command.options if options.get(name) != queue.options.get(name)}
    for name in changed:
        _check_alterable(queue, name)
    return Decision([(me.QueueAltered(queue.name, changed), None)] if changed else [], bool(changed))


def _check_alterable(queue: Queue, name: str) -> None:
    if not OPTIONS[name].alterable:
        now: Any = queue.options.get(name, OPTIONS[name].default)
        can = [other for other, option in OPTIONS.items() if option.alterable and option.type in (None, queue.kind)]
        raise errors.InvalidRequest(
            f"option {name!r} of queue {queue.name!r} is {now!r} for as long as it lives, since its messages lie by it: nothing "
            f"was changed. Delete the queue, or alter one of {', '.join(can)}"
        )


def pause_queue(state: BrokerState, command: mc.PauseQueue, now: c.Now) -> Decision[bool]:
    """Stop delivery from a queue; nothing where it is paused already. Raises NotFound."""
    return _set_paused(state, command.queue, True)


def resume_queue(state: BrokerState, command: mc.ResumeQueue, now: c.Now) -> Decision[bool]:
    """Start delivery from a paused queue again; nothing where it is not paused. Raises NotFound."""
    return _set_paused(state, command.queue, False)


def _set_paused(state: BrokerState, name: str, paused: bool) -> Decision[bool]:
    queue = need_queue(state, name)
    if queue.paused == paused:
        return Decision([], False)
    return Decision([(me.QueuePaused(queue.name, paused), None)], True)
