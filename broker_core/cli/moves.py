"""`penstock queue move | copy | redrive | dead-letters | discard | replace`"""

from __future__ import annotations

import argparse
from functools import partial
from typing import Any

import pyarrow as pa

from ..client.flight import redriving
from . import calls, show
from .main import UsageError

_GROUPS = show.columns("reason", "messages", "error")


def _transfer(args: argparse.Namespace, action: str, done: str) -> int:
    fields = {"target": args.target, "messages": args.limit, "first": args.first or 0, "last": args.last}
    answer = _ask(args, f"queue.{action}", **fields)
    full = f"; {args.target} has no capacity for the rest" if answer["full"] else ""
    return show.answer(args, answer, f"{show.counted(answer[done], 'message')} of {args.name} {done} to {args.target}{full}")


move = partial(_transfer, action="move", done="moved")
copy = partial(_transfer, action="copy", done="copied")


def redrive(args: argparse.Namespace) -> int:
    if args.error is not None and args.reason is None:
        raise UsageError("--error needs --reason: `penstock queue dead-letters` lists both")
    if args.sequence and args.reason is not None:
        raise UsageError("--sequence names the dead letters: leave --reason out")
    if args.sequence:
        ranges = redriving.Ranges(*(pa.array(numbers, pa.int64()) for numbers in zip(*args.sequence, strict=True)))
        with calls.broker(args) as broker, show.waiting(f"queue.redrive {args.name}", quiet=args.json):
            *_, done = redriving.redrive(broker, args.name, ranges, args.limit)
        answer = {"redriven": done.messages, "stayed": done.stayed}
    else:
        answer = _ask(args, "queue.redrive", messages=args.limit, selector=args.selector, **_group(args))
    text = f"{show.counted(answer['redriven'], 'dead letter')} of {args.name} returned to their queues"
    if answer["stayed"]:
        text += f"; {answer['stayed']:,} stay: their queue was deleted, is full, or has a newer value"
    return show.answer(args, answer, text)


def _group(args: argparse.Namespace) -> dict[str, str]:
    return {name: value for name in ("reason", "error") if (value := getattr(args, name)) is not None}


def dead_letters(args: argparse.Namespace) -> int:
    answer = _ask(args, "queue.deadLetters")
    return show.listed(args, answer["groups"], _GROUPS, empty=f"no dead letters in {args.name}")


def replace(args: argparse.Namespace) -> int:
    properties = calls.pairs(args.property, "--property") if args.property else None
    fields = {"target": args.target or args.name, "body": args.body, "subject": args.subject, "properties": properties}
    answer = _ask(args, "message.replace", sequence=args.sequence, **fields)
    return show.answer(
        args, answer, f"message {args.sequence} of {args.name} is replaced by message {answer['sequence']} of {answer['queue']}"
    )


def discard(args: argparse.Namespace) -> int:
    if args.last is not None and args.last < args.sequence:
        raise UsageError(f"--to {args.last} is before --sequence {args.sequence}")
    answer = _ask(args, "queue.discard", sequence=args.sequence, last=args.last, error=args.error)
    text = f"{show.counted(answer['discarded'], 'message')} of {args.name} discarded: archived as purged, with the reason"
    return show.answer(args, answer, text)


def _ask(args: argparse.Namespace, action: str, **fields: Any) -> dict[str, Any]:
    return calls.ask_long(args, f"{action} {args.name}", action, queue=args.name, **fields)
