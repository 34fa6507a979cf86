"""`penstock receive`: messages are accepted after they are written."""

from __future__ import annotations

import argparse
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from .. import errors
from ..amqp import RemoteProtocolError
from ..amqp.deliveries import Delivery
from ..amqp.messages import DATA, MAX_SECTIONS_READ, PROPERTIES, VALUE, bare, scan
from ..amqp.types import Int, Symbol
from ..client.amqp import Receiver
from ..local_files import sync
from ..messages.encoding import reference
from . import show
from .amqp_calls import TURN_S, Meter, Stop, connection
from .main import INTERRUPTED, REFUSED, Failed, UsageError, report
from .stdout import Lines

#: An interrupted run returns at most this many messages.
CREDIT = 500
PIPE_CREDIT = 50  # into a pipe, whose reader may end early
HINT_S = 1.0  # without a message until a hint
_FIELDS = ("messageId", "correlationId", "subject", "to", "replyTo", "contentType", "groupId", "properties", "body")


def run(args: argparse.Namespace) -> int:
    if args.json and args.output != "-":
        raise UsageError("--json writes to stdout, so it has no meaning with --output DIR")
    # Lines on a terminal would break the bar.
    quiet = args.json or (args.output == "-" and sys.stdout.isatty())
    with connection(args) as broker, Stop() as stop, Meter(f"receiving from {args.queue}", args.count, quiet=quiet) as meter:
        place = Lines(_json_line if args.json else _line, stop, broker.idle) if args.output == "-" else Folder(Path(args.output))
        credit = PIPE_CREDIT if isinstance(place, Lines) and place.pipe else CREDIT
        credit = min(credit, args.count or credit)
        asked: dict[str, Any] = {Symbol("exclusive"): True} if args.exclusive else {}
        if args.priority is not None:
            asked[Symbol("priority")] = Int(args.priority)
        receiver = broker.receiver(
            args.queue, credit, limit=args.count, browse=args.browse, selector=args.selector, properties=asked or None
        )
        hints = [] if receiver.hint is None else [receiver.hint]  # shown once, while no message arrives
        count = malformed = 0
        while not stop.asked and (deliveries := _next(receiver, args.wait, stop, hints)):
            hints.clear()
            readable = _readable(receiver, deliveries, args)
            written = _take(receiver, readable, place, stop)
            malformed += len(deliveries) - len(readable)
            count += written + len(deliveries) - len(readable)
            meter.show(count, count)
            if written < len(readable):
                receiver.release(readable[written:])
                receiver.release_rest()
                break
        show.notes(hints)
        receiver.close()  # with the last outcome, before the report
    if sys.stderr.isatty():
        seen = "seen in" if args.browse else "received from"
        print(f"{'interrupted: ' if stop.asked else ''}{show.counted(count, 'message')} {seen} {args.queue}", file=sys.stderr)
    return INTERRUPTED if stop.asked else REFUSED if malformed else 0


def _take(receiver: Receiver, deliveries: list[Delivery], target: Lines | Folder, stop: Stop) -> int:
    """Write and accept deliveries; return their number."""
    done = 0
    while done < len(deliveries) and not (done and stop.asked):
        part = deliveries[done : done + target.batch]
        written = target.write(part)
        receiver.accept(part[:written])
        done += written
        if written < len(part):
            break
    return done


def _readable(receiver: Receiver, deliveries: list[Delivery], args: argparse.Namespace) -> list[Delivery]:
    """Reject malformed messages, so that they are not delivered repeatedly."""
    readable = []
    for delivery in deliveries:
        try:
            _fields(delivery) if args.json else body_of(delivery)
        except errors.MalformedMessage as error:
            if not args.browse:
                receiver.reject([delivery], str(error), condition="amqp:decode-error")
            done = "stays in the queue" if args.browse else "is rejected"
            report(errors.MalformedMessage(f"{error}; it {done}"), as_json=args.json)
        else:
            readable.append(delivery)
    return readable


def _next(receiver: Receiver, wait_s: float, stop: Stop, hints: list[str]) -> list[Delivery]:
    """Wait up to `wait_s` seconds for deliveries, or until a stop."""
    left, waited = wait_s, 0.0
    while not stop.asked and not receiver.exhausted and left > 0:
        turn = min(left, TURN_S)
        if deliveries := receiver.receive(timeout_s=turn):
            return deliveries
        left -= turn
        waited += turn
        if waited >= HINT_S:
            show.notes(hints)
            hints.clear()
    if not stop.asked:
        receiver.drain()  # includes deliveries in transit
    return [] if stop.asked else receiver.receive(timeout_s=0)


# --- Bodies ----------------------------------------------------------------------------------------------------------------


def body_of(delivery: Delivery) -> bytes:
    """Return the body as in the column `body`: bytes of data or text, other values as JSON, empty for null."""
    payload = delivery.payload
    try:
        inside = [section for section in scan(payload, most=MAX_SECTIONS_READ) if PROPERTIES <= section.code <= VALUE]
        if inside and inside[-1].code == DATA and (len(inside) == 1 or inside[-2].code != DATA):
            section = inside[-1]
            return payload[section.value + (2 if payload[section.value] == 0xA0 else 5) : section.end]
        body = reference.row(bare(payload), None, ["body"])["body"]
    except RemoteProtocolError as error:
        raise errors.MalformedMessage(f"it is not well-formed AMQP ({error})") from error
    return body if isinstance(body, bytes) else b""


def _fields(delivery: Delivery) -> dict[str, Any]:
    try:
        row = reference.row(bare(delivery.payload), None, _FIELDS)
    except RemoteProtocolError as error:
        raise errors.MalformedMessage(f"it is not well-formed AMQP ({error})") from error
    if row["properties"] is not None:
        row["properties"] = dict(row["properties"])
    return {name: value for name, value in row.items() if value is not None}


# --- Targets ---------------------------------------------------------------------------------------------------------------


def _line(delivery: Delivery) -> bytes:
    return body_of(delivery) + b"\n"


def _json_line(delivery: Delivery) -> bytes:
    return (show.as_json(_fields(delivery)) + "\n").encode()


class Folder:
    """Writes each message to a new numbered file, which is on the disk before `write` returns."""

    batch = sys.maxsize

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            path.mkdir(parents=True, exist_ok=True)
            taken = [int(name) for name in os.listdir(path) if re.fullmatch(r"[0-9]{8,}", name)]
        except OSError as error:
            raise UsageError(f"--output {path} cannot be used: {error.strerror or error}") from error
        self._next = max(taken, default=0) + 1

    def write(self, deliveries: Sequence[Delivery]) -> int:
        try:
            for delivery in deliveries:
                with open(self._path / f"{self._next:08}", "xb") as file:
                    file.write(body_of(delivery))
                    file.flush()
                    os.fsync(file.fileno())
                self._next += 1
            sync(self._path)  # it contains the names
        except OSError as error:
            raise Failed(
                f"{self._path} cannot be written to: {error.strerror or error}; unaccepted messages return to the queue"
            ) from error
        return len(deliveries)
