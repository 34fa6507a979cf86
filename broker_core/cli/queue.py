"""`penstock queue …`"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from datetime import datetime, timezone
from functools import partial
from itertools import islice
from typing import Any

from .. import moments
from ..client.flight import Client
from ..errors import InvalidRequest, PenstockError, ResourceLimit
from ..selectors import hints_of, parse_optional
from . import broker_totals, calls, login, show
from .main import Failed, UsageError

STATES = ("available", "acquired", "archived", "delayed", "deferred")

_LIST = {
    **show.columns("queue", "type", "paused", "available", "acquired", "delayed", "deferred", "staged", "archived"),
    **show.columns("bytes", "leases", deadLettered="dead"),
}
_SELDOM = ("paused", "delayed", "deferred", "staged", "deadLettered")  # shown if a queue has any
_PEEK = ["sequenceNumber", "enqueuedTime", "deliveryCount", "subject", "messageId", "body"]
_SETTLED = ["state", "outcome", "settledTime", "error", "holder"]
_NAMED = 5  # queues that an error names
_MAPS = ["properties", "annotations"]  # annotations contain a dead letter's origin and reason


declare = partial(calls.declare, kind="queue")


def list_all(args: argparse.Namespace) -> int:
    with broker_totals.brokers(args) as brokers:
        queues = broker_totals.queues(brokers)
    columns = {key: heading for key, heading in _LIST.items() if key not in _SELDOM or any(queue[key] for queue in queues)}
    rows = queues
    if len(brokers) > 1:
        columns["at"] = "brokers"
        rows = [{**queue, "at": len(queue["brokers"])} for queue in queues]
    user = login.user(args)
    empty = "no queues yet; declare one with `penstock queue declare NAME`"
    if user is not None:
        empty = f"no queues on which {user} has a right; `penstock permit` gives one"
    return show.listed(args, queues, columns, empty=empty, rows=rows)


def stat(args: argparse.Namespace) -> int:
    with broker_totals.brokers(args) as brokers:
        answer = broker_totals.queue(brokers, args.name)
    if args.json:
        show.print_json(answer)
    else:
        show.print_facts({**answer, **_oldest(answer)})
    return 0


def _oldest(answer: dict[str, Any]) -> dict[str, str]:
    oldest = answer["oldest"]
    at = [url for url in answer.get("brokers", ()) if url in (oldest or ())]
    return {f"oldest at {url}": show.pinned_by(oldest[url]) for url in at} or {"oldest": show.pinned_by(oldest)}


def peek(args: argparse.Namespace) -> int:
    states = [state.strip() for state in args.states.split(",")]
    if not set(states) <= set(STATES):
        raise UsageError(f"--states cannot be {args.states!r}; allowed are {', '.join(STATES)}, comma-separated")
    try:
        times = moments.parse_bounds(args.since, args.until, datetime.now(timezone.utc))
    except InvalidRequest as error:
        raise UsageError(str(error)) from None
    rows: list[dict[str, Any]] = []
    stopped: PenstockError | None = None
    with calls.broker(args) as broker:
        try:
            for row in islice(_messages(broker, args, states, times), args.count):
                rows += [row]
        except PenstockError as error:
            if not rows:
                raise
            stopped = error  # messages before it are shown
        hints = [] if rows else _hints(broker, args, states)
    if args.json:
        show.print_json(rows)
    else:
        _show(args, rows, states, moments.described(*times))
    show.notes(hints)
    if stopped is not None:
        raise stopped
    return 0


def _hints(broker: Client, args: argparse.Namespace, states: list[str]) -> list[str]:
    """Return hints on names that may be meant as fields."""
    selector = parse_optional(args.selector)
    if selector is None or not selector.lookalikes:
        return []
    asked = {"states": states, "first": args.first or 0, "count": 1, "selector": args.selector}
    try:
        hints: list[str] = broker.call("queue.messages", queue=args.name, **asked).get("hints", [])
    except ResourceLimit:  # a scan has a time limit
        return hints_of(selector)
    return hints


def _show(args: argparse.Namespace, rows: list[dict[str, Any]], states: list[str], times: str) -> None:
    for row in rows:
        row["body"] = show.preview(row["body"])
    columns = _PEEK if states == ["available"] else [*_PEEK[:2], *_SETTLED[:2], *_PEEK[2:]]
    empty = f"no {' or '.join(states)} message in {args.name}" + (f" from {args.first:,} on" if args.first else "") + times
    show.print_table(rows, show.columns(*columns), empty=empty)
    for row in rows:
        if row["error"] is not None:  # too long for a column
            print(f"message {row['sequenceNumber']:,}: {show.printable(row['error'])}")


def _messages(
    broker: Client, args: argparse.Namespace, states: list[str], times: tuple[int | None, int | None]
) -> Iterator[dict[str, Any]]:
    columns = [*_PEEK, *_SETTLED, "priority", "groupId", *_MAPS]
    asked = {"states": states, "first": args.first or 0, "selector": args.selector, "columns": columns}
    asked |= {"since": times[0], "until": times[1]}
    for batch in broker.get(op="browse", queue=args.name, **asked):
        # One by one: a batch may have far more messages.
        for row in range(batch.num_rows):
            (message,) = batch.slice(row, 1).to_pylist()
            message.update({name: dict(message[name]) for name in _MAPS if message[name] is not None})
            yield message


def alter(args: argparse.Namespace) -> int:
    options: dict[str, str | None] = {**calls.pairs(args.option)}
    if both := [name for name in args.reset if name in options]:
        raise UsageError(f"--option and --reset both name {both[0]!r}; give one of them")
    options.update(dict.fromkeys(args.reset))
    if not options:
        raise UsageError("nothing to alter: give --option NAME=VALUE, or --reset NAME for its default")
    answer = calls.ask_long(args, f"queue.alter {args.name}", "queue.alter", queue=args.name, options=options)
    result = "is altered" if answer["altered"] else "had these options already"
    return show.answer(args, answer, f"queue {args.name} {result}")


def pause(args: argparse.Namespace) -> int:
    answer = calls.ask_long(args, f"queue.pause {args.name}", "queue.pause", queue=args.name)
    return show.answer(args, answer, f"queue {args.name} is paused: it delivers no message until `queue resume`")


def resume(args: argparse.Namespace) -> int:
    answer = calls.ask_long(args, f"queue.resume {args.name}", "queue.resume", queue=args.name)
    return show.answer(args, answer, f"queue {args.name} delivers again")


def purge(args: argparse.Namespace) -> int:
    answer = calls.ask_long(args, f"purging {args.name}", "queue.purge", queue=args.name)
    return show.answer(args, answer, f"{show.counted(answer['purged'], 'message')} of {args.name} purged")


def delete(args: argparse.Namespace) -> int:
    with calls.broker(args) as broker:
        may_lose = args.yes or _may_lose(broker, args)
        with show.waiting(f"deleting {args.name}", quiet=args.json):
            answer = broker.call(
                "queue.delete",
                queue=args.name,
                force=args.force,
                ifEmpty=args.if_empty or not may_lose,
                ifUnused=args.if_unused,
                timeout_s=calls.LONG_S,
            )
    lost = f"; {show.counted(answer['messages'], 'message')} lost" if answer["messages"] else ""
    return show.answer(args, answer, f"queue {args.name} is deleted{lost}")


def _may_lose(broker: Client, args: argparse.Namespace) -> bool:
    """Ask if there is an objection. Without messages, return False, so that later arrivals are not lost either."""
    stat = broker.call("queue.stat", queue=args.name)
    live = 0 if args.if_empty else sum(stat[state] for state in ("available", "acquired", "delayed", "deferred"))
    problems = list(_named_by(broker, args.name))
    if live:
        text = f"queue {args.name} has {show.counted(live, 'message')} that would be lost"
        problems.insert(0, (text, f"`penstock queue move {args.name} TARGET` keeps them"))
    if not problems:
        return False
    objections, ways = [text for text, _ in problems], [way for _, way in problems]
    if args.json or not sys.stdin.isatty():
        deletes = "--yes deletes them" if live else "--yes deletes it"
        raise UsageError(f"{'; '.join(objections)}: {', '.join([deletes, *ways])}")
    if live:
        objections[0] += f" ({show.counted(stat['consumers'], 'consumer')}, {show.counted(len(stat['leases']), 'lease')})"
    print("\n".join(f"{line}." for line in objections), file=sys.stderr)
    if input("Delete it? [y/N] ").strip().lower() not in ("y", "yes"):
        raise Failed("not deleted")
    return live > 0


def _named_by(broker: Client, name: str) -> Iterator[tuple[str, str]]:
    """Yield the visible queues and exchanges that send messages to this queue by an option, with a remedy."""
    queues = [queue["queue"] for queue in broker.call("queue.list")["queues"] if queue["options"].get("deadLetterQueue") == name]
    queues = [queue for queue in queues if queue != name]
    if queues:
        text = f"{name} is the dead-letter queue of {_some(queues)}, whose dead letters would stay in their queues, archived"
        yield text, f"`penstock queue alter {queues[0]} --option deadLetterQueue=OTHER` names another"
    every = broker.call("exchange.list")["exchanges"]
    exchanges = [exchange["exchange"] for exchange in every if exchange["options"].get("alternate") == name]
    if exchanges:
        text = f"{name} is the alternate of {_some(exchanges)}, which would refuse messages without another bound queue"
        way = f"another needs `penstock exchange delete {exchanges[0]}`, and a new declaration and bindings"
        yield text, way


def _some(names: list[str]) -> str:
    more = len(names) - _NAMED
    return ", ".join(names[:_NAMED]) + (f" and {more:,} more" if more > 0 else "")
