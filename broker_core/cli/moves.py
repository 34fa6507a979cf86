"""`penstock queue alter | pause | resume | move | copy | redrive | discard`"""

from __future__ import annotations

import argparse
from typing import Any

import pyarrow as pa

from ..client.flight import redriving
from . import calls, show
from .main import UsageError
from .pairs import pairs


def alter(given: argparse.Namespace) -> int:
    """Run `penstock queue alter`."""
    options: dict[str, str | None] = {**pairs(given.option)}
    if both := [name for name in given.reset if name in options]:
        raise UsageError(f"--option and --reset both name {both[0]!r}; give one of them")
    options.update(dict.fromkeys(given.reset))
    if not options:
        raise UsageError("nothing to alter: give --option NAME=VALUE, or --reset NAME for its default")
    answer = _ask(given, "queue.alter", options=options)
    said = "is altered" if answer["altered"] else "had these options already"
    return show.answer(given, answer, f"queue {given.name} {said}")


def pause(given: argparse.Namespace) -> int:
    """Run `penstock queue pause`."""
    answer = _ask(given, "queue.pause")
    return show.answer(given, answer, f"queue {given.name} is paused: it delivers nothing until it is resumed")


def resume(given: argparse.Namespace) -> int:
    """Run `penstock queue resume`."""
    return show.answer(given, _ask(given, "queue.resume"), f"queue {given.name} delivers again")


def move(given: argparse.Namespace) -> int:
    """Run `penstock queue move`."""
    return _shift(given, "move", "moved")


def copy(given: argparse.Namespace) -> int:
    """Run `penstock queue copy`."""
    return _shift(given, "copy", "copied")


def _shift(given: argparse.Namespace, what: str, done: str) -> int:
    fields = {"target": given.target, "messages": given.limit, "first": given.first or 0, "last": given.last}
    answer = _ask(given, f"queue.{what}", **fields)
    full = f"; {given.target} has no room for the rest" if answer["full"] else ""
    return show.answer(given, answer, f"{show.counted(answer[done], 'message')} of {given.name} {done} to {given.target}{full}")


def redrive(given: argparse.Namespace) -> int:
    """Run `penstock queue redrive`."""
    if given.sequence:
        answer = _redrive_numbered(given)
    else:
        answer = _ask(given, "queue.redrive", messages=given.limit, selector=given.selector)
    said = f"{show.counted(answer['redriven'], 'dead letter')} of {given.name} sent back where they came from"
    if answer["stayed"]:
        said += f"; {answer['stayed']:,} stay: their queue is gone or full, or has a newer value"
    return show.answer(given, answer, said)


def _redrive_numbered(given: argparse.Namespace) -> dict[str, Any]:
    ranges = redriving.Ranges(*(pa.array(numbers, pa.int64()) for numbers in zip(*given.sequence, strict=True)))
    with calls.broker(given) as broker, show.waiting(f"queue.redrive {given.name}", quiet=given.json):
        *_, done = redriving.redrive(broker, given.name, ranges, given.limit)
    return {"redriven": done.messages, "stayed": done.stayed}


def discard(given: argparse.Namespace) -> int:
    """Run `penstock queue discard`."""
    if given.last is not None and given.last < given.sequence:
        raise UsageError(f"--to {given.last} is before --sequence {given.sequence}")
    answer = _ask(given, "queue.discard", sequence=given.sequence, last=given.last, error=given.error)
    text = f"{show.counted(answer['discarded'], 'message')} of {given.name} discarded: archived as purged, with the reason"
    return show.answer(given, answer, text)


def _ask(given: argparse.Namespace, action: str, **fields: Any) -> dict[str, Any]:
    with calls.broker(given) as broker, show.waiting(f"{action} {given.name}", quiet=given.json):
        return broker.call(action, queue=given.name, timeout_s=calls.LONG_S, **fields)
