"""`penstock queue move | copy | redrive | discard`"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import pyarrow as pa

from ..client.flight import redriving
from . import calls, show
from .main import UsageError


def _transfer(args: argparse.Namespace, action: str, done: str) -> int:
    fields = {"target": args.target, "messages": args.limit, "first": args.first or 0, "last": args.last}
    answer = _ask(args, f"queue.{action}", **fields)
    full = f"; {args.target} has no capacity for the rest" if answer["full"] else ""
    return show.answer(args, answer, f"{show.counted(answer[done], 'message')} of {args.name} {done} to {args.target}{full}")


move = partial(_transfer, action="move", done="moved")
copy = partial(_transfer, action="copy", done="copied")


def redrive(args: argparse.Namespace) -> int:
    if args.sequence:
        ranges = redriving.Ranges(*(pa.array(numbers, pa.int64()) for numbers in zip(*args.sequence, strict=True)))
        with calls.broker(args) as broker, show.waiting(f"queue.redrive {args.name}", quiet=args.json):
            *_, done = redriving.redrive(broker, args.name, ranges, args.limit)
        answer = {"redriven": done.messages, "stayed": done.stayed}
    else:
        answer = _ask(args, "queue.redrive", messages=args.limit, selector=args.selector)
    text = f"{show.counted(answer['redriven'], 'dead letter')} of {args.name} returned to their queues"
    if answer["stayed"]:
        text += f"; {answer['stayed']:,} stay: their queue was deleted, is full, or has a newer value"
    return show.answer(args, answer, text)


def discard(args: argparse.Namespace) -> int:
    if args.last is not None and args.last < args.sequence:
        raise UsageError(f"--to {args.last} is before --sequence {args.sequence}")
    answer = _ask(args, "queue.discard", sequence=args.sequence, last=args.last, error=args.error)
    text = f"{show.counted(answer['discarded'], 'message')} of {args.name} discarded: archived as purged, with the reason"
    return show.answer(args, answer, text)


def _ask(args: argparse.Namespace, action: str, **fields: Any) -> dict[str, Any]:
    return calls.ask_long(args, f"{action} {args.name}", action, queue=args.name, **fields)
