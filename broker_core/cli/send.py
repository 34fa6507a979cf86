"""`penstock send`"""

from __future__ import annotations

import argparse
import contextlib
import os
import select
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from .. import amqp, errors
from ..amqp.performatives import Header, Properties
from ..amqp.types import Long
from ..client.amqp import Connection, Sender
from ..messages.annotations import DELIVERY_DELAY
from . import calls, show
from .amqp_calls import TURN_S, Meter, Stop, connection
from .main import INTERRUPTED, Failed, UsageError

#: Bytes of one read, and the longest line or file if the broker has no limit.
BLOCK_OCTETS = 256 * 1024
MAX_BODY_OCTETS = 64 << 20


def run(args: argparse.Namespace) -> int:
    prefix = head(args)
    for file in args.files:
        if not os.access(file, os.R_OK) or file.is_dir():
            raise UsageError(f"{file} cannot be read; nothing was sent")
    total = sum(file.stat().st_size for file in args.files) if args.files else None
    with connection(args) as broker, Stop() as stop, Meter(f"sending to {args.queue}", total, quiet=args.json) as meter:
        sender = broker.sender(args.queue)
        try:
            _send(sender, prefix, _Input(args, broker, sender, stop), meter)
        except errors.PenstockError as error:
            with contextlib.suppress(errors.PenstockError):
                sender.flush()
            counts = f"{show.counted(sender.accepted, 'message')} confirmed"
            raise type(error)(f"{error}; {counts}, {sender.unsettled:,} may or may not have arrived") from error
    if args.json:
        show.print_json({"queue": args.queue, "sent": sender.accepted, "interrupted": stop.asked})
    else:
        print(f"{'interrupted: ' if stop.asked else ''}{show.counted(sender.accepted, 'message')} sent to {args.queue}")
    return INTERRUPTED if stop.asked else 0


def _send(sender: Sender, prefix: bytes, blocks: _Input, meter: Meter) -> None:
    for bodies in blocks:
        sender.send([message(prefix, body) for body in bodies])
        if sender.refused:
            break
        meter.show(sender.sent, blocks.octets)
    sender.flush()


# --- Messages --------------------------------------------------------------------------------------------------------------


def head(args: argparse.Namespace) -> bytes:
    application_properties = calls.pairs(args.property, "--property")
    properties = {name: getattr(args, name) for name in ("message_id", "subject", "content_type", "group_id")}
    ttl = None if args.ttl is None else _milliseconds(args.ttl)
    try:
        return amqp.Message(
            header=Header(durable=args.durable, priority=args.priority, ttl=ttl),
            message_annotations=None if args.delay is None else {DELIVERY_DELAY: Long(_milliseconds(args.delay))},
            properties=Properties(**properties) if any(value is not None for value in properties.values()) else None,
            application_properties=application_properties or None,
        ).encode()
    except amqp.EncodeError as error:
        raise UsageError(f"--message-id, --subject, --content-type, --group-id or --property: {error}") from error


def _milliseconds(seconds: float) -> int:
    return max(1, round(seconds * 1000))


def message(prefix: bytes, body: bytes) -> bytes:
    """Append the body as a data section (3.2.6)."""
    size = len(body)
    if size < 256:
        return b"%b\x00\x53\x75\xa0%c%b" % (prefix, size, body)
    return b"".join((prefix, b"\x00\x53\x75\xb0", size.to_bytes(4, "big"), body))


# --- Bodies ----------------------------------------------------------------------------------------------------------------


class _Input:
    """Iterates over lists of bodies, and answers heartbeats while it waits. `octets`: read bytes."""

    def __init__(self, args: argparse.Namespace, broker: Connection, sender: Sender, stop: Stop) -> None:
        self.octets = 0
        self._files: list[Path] = args.files
        self._whole: bool = args.whole
        self._broker = broker
        self._stop = stop
        self._limit = sender.link.max_message_size or MAX_BODY_OCTETS

    def __iter__(self) -> Iterator[list[bytes]]:
        if not self._files:
            yield from self._bodies(sys.stdin.fileno(), "stdin")
        for file in self._files:
            if self._stop.asked:
                return
            try:
                # The wait for a named pipe's writer is below, where Ctrl-C works.
                descriptor = os.open(file, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
            except OSError as error:
                raise UsageError(f"{file} cannot be read: {error.strerror or error}") from error
            try:
                yield from self._bodies(descriptor, str(file))
            finally:
                os.close(descriptor)

    def _bodies(self, descriptor: int, where: str) -> Iterator[list[bytes]]:
        blocks = self._blocks(descriptor, where)
        if not self._whole:
            yield from self._lines(blocks, where)
            return
        parts: list[bytes] = []
        for block in blocks:
            parts.append(block)
            self._check(sum(map(len, parts)), where)
        if not self._stop.asked:
            yield [b"".join(parts)]

    def _lines(self, blocks: Iterable[bytes], where: str) -> Iterator[list[bytes]]:
        begun: list[bytes] = []
        size = 0
        for block in blocks:
            first, *lines = block.split(b"\n")
            begun.append(first)
            size += len(first)
            self._check(size, f"a line of {where}")
            if lines:
                last = lines.pop()
                yield [b"".join(begun), *lines]
                begun, size = [last], len(last)
        if size and not self._stop.asked:
            yield [b"".join(begun)]  # the last line has no line end

    def _check(self, size: int, source: str) -> None:
        if size > self._limit:
            raise errors.ResourceLimit(f"{source} exceeds the limit of a message, {self._limit:,} bytes; it was not sent")

    def _blocks(self, descriptor: int, where: str) -> Iterator[bytes]:
        waiting = select.poll()
        waiting.register(descriptor, select.POLLIN)
        waiting.register(self._broker.fileno(), select.POLLIN)
        while not self._stop.asked:
            ready = [number for number, _ in waiting.poll(TURN_S * 1000)]
            self._broker.idle()
            if descriptor not in ready:
                continue
            try:
                block = os.read(descriptor, BLOCK_OCTETS)
            except BlockingIOError:  # another process has read the same pipe
                continue
            except OSError as error:
                raise Failed(f"{where} cannot be read further: {error.strerror or error}") from error
            if not block:
                return
            self.octets += len(block)
            yield block
