"""`penstock explain …`"""

from __future__ import annotations

import argparse
import shutil
import sys
import textwrap
from typing import Any

from . import calls, show


def queue(args: argparse.Namespace) -> int:
    answer = calls.ask(args, "queue.explain", queue=args.name)
    if args.json:
        show.print_json(answer)
        return 0
    print(_summary(answer))
    consumers = answer["consumers"]
    for consumer in consumers:
        print(f"\n{show.printable(_title(consumer))}")
        for line in _facts(consumer):
            print(_indented(show.printable(line)))
    if answer["consumerCount"] > len(consumers):
        print(f"\n{answer['consumerCount'] - len(consumers):,} more consumers are not shown")
    return 0


def _indented(line: str) -> str:
    """Wrap a line for a terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else sys.maxsize
    return textwrap.fill(line, width, initial_indent="  ", subsequent_indent="    ")


def _summary(answer: dict[str, Any]) -> str:
    due = "" if answer["nextDue"] is None else f", the next until {show.moment(answer['nextDue'])}"
    counts = f"{answer['available']:,} waiting, {answer['acquired']:,} held, {answer['delayed']:,} delayed{due}"
    counts += f", {answer['deferred']:,} deferred" if answer["deferred"] else ""
    consumers = show.counted(answer["consumerCount"], "consumer") if answer["consumerCount"] else "no consumer"
    paused = "; paused" if answer["paused"] else ""
    return f"{show.printable(answer['queue'])}: {counts}; {consumers}{paused}"


def _title(consumer: dict[str, Any]) -> str:
    if consumer["kind"] == "lease":
        return f"lease {consumer['name']}"
    where = "" if consumer["peer"] is None else f" from {consumer['peer']}, user {consumer['user']} ({consumer['connection']})"
    return f"link {consumer['name']}{where}"


def _facts(consumer: dict[str, Any]) -> list[str]:
    facts = [] if consumer["selector"] is None else [f"selector: {consumer['selector']}"]
    if consumer["held"]:
        since = f" for {show.duration(consumer['heldSeconds'])}" if consumer["heldSeconds"] else ""
        facts.append(f"holds {show.counted(consumer['held'], 'message')}{since}")
    if consumer["receives"]:
        return [*facts, f"receives message {consumer['next']:,} next"]
    return [*facts, *(f"does not receive: {reason['text']}" for reason in consumer["reasons"])]
