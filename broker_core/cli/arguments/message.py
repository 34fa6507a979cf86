"""Arguments of `penstock send`, `penstock receive` and `penstock work`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ...quantities import MAX_MILLISECONDS
from ...settings import listeners
from .parsers import Commands, Parser, add_login, extending, lazily, make_command, positive, whole

DEFAULT_AMQP_URL = "amqp://127.0.0.1:5672"
#: Priorities of a consumer. `amqp_plane.loop.interest` has the same range, but its import is slow.
LINK_PRIORITIES = range(-128, 128)


def add_commands(commands: Commands[Parser]) -> None:
    _send(commands)
    _receive(commands)
    _work(commands)


def _work(commands: Commands[Parser]) -> None:
    work = make_command(
        commands,
        "work",
        "handle the messages of queues with the functions of a Python module",
        "Runs functions decorated with @penstock.worker, each on its queue, until SIGTERM or Ctrl-C. A message is accepted when"
        " its function returns. If the function raises an exception, the message is delivered again later. A stop waits for"
        " running functions.",
        lazily("work", "run"),
    )
    work.add_argument("workers", metavar="MODULE:FUNCTION", nargs="+", help="such as shop.orders:handle, relative to this folder")
    work.set_defaults(more=extending("workers", str))
    url = os.environ.get("PENSTOCK_URL", DEFAULT_AMQP_URL)
    work.add_argument("--url", default=url, help=f"amqp://… or amqps://…; default: $PENSTOCK_URL, else {DEFAULT_AMQP_URL}")
    add_login(work)
    text = "longest wait of a stop for running functions; default: 30"
    work.add_argument("--grace", type=_seconds_or_forever, default=30.0, metavar="SECONDS", help=text)
    text = "serve metrics for Prometheus at this port of this machine; 0: a free one, which the log contains"
    work.add_argument("--metrics-port", type=_port, metavar="N", help=text)


def _send(commands: Commands[Parser]) -> None:
    send = _amqp_command(
        commands,
        "send",
        "send lines, or whole files, as messages",
        "Sends each line of the files, or of stdin, as a message without its line end. An empty line is an empty message."
        " Exit code 0 means that the broker has confirmed every message.",
    )
    send.add_argument("files", metavar="FILE", nargs="*", type=Path, help="files to read; default: stdin")
    send.set_defaults(more=extending("files", Path))
    send.add_argument("--whole", action="store_true", help="send each file as one message")
    send.add_argument(
        "--property",
        action="append",
        default=[],
        metavar="K=V",
        help="an application property of every message, a string; may be repeated",
    )
    send.add_argument("--content-type", metavar="TYPE", help="of every message, such as application/json")
    send.add_argument(
        "--durable",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="whether the messages must survive a restart of the broker",
    )
    send.add_argument("--ttl", type=_seconds, metavar="SECONDS", help="time after which the messages expire; default: never")
    send.add_argument("--delay", type=_delay, metavar="SECONDS", help="time before the messages are delivered; default: none")
    send.add_argument("--priority", type=whole, choices=range(10), metavar="N", help="0 to 9; default: none, which counts as 4")
    send.add_argument("--subject", metavar="TEXT", help="of every message; also the routing key for an exchange without one")
    send.add_argument("--group-id", metavar="TEXT", help="the message group of every message")
    send.add_argument(
        "--message-id", metavar="TEXT", help="of every message; a queue that detects duplicates accepts one message for each id"
    )


def _receive(commands: Commands[Parser]) -> None:
    receive = _amqp_command(
        commands,
        "receive",
        "receive messages, and write their bodies to stdout or to files",
        "Writes the body of each message as a line to stdout, then accepts the message. Messages that were not written return"
        " to the queue. A message in a pipe is accepted after its reader has read it.",
    )
    receive.add_argument("--count", type=positive, metavar="N", help="stop after N messages; default: no limit")
    receive.add_argument(
        "--wait",
        type=_seconds_or_forever,
        default=1.0,
        metavar="SECONDS",
        help="stop when no message arrives for this time; inf: never; default: 1",
    )
    receive.add_argument("--browse", action="store_true", help="read copies: the messages stay in the queue")
    receive.add_argument("--selector", metavar="TEXT", help="only messages that match, such as \"colour = 'red' AND size > 5\"")
    receive.add_argument("--exclusive", action="store_true", help="be the only consumer of the queue")
    receive.add_argument(
        "--priority",
        type=_link_priority,
        metavar="N",
        help="-128 to 127; consumers with a lower priority get the remaining messages; default: 0",
    )
    receive.add_argument(
        "--output",
        default="-",
        metavar="DIR",
        help="write each message to a numbered file in DIR; default: -, lines on stdout",
    )


def _amqp_command(commands: Commands[Parser], name: str, text: str, description: str) -> Parser:
    command = make_command(commands, name, text, description, lazily(name, "run"))
    command.add_argument("queue", metavar="QUEUE")
    url = os.environ.get("PENSTOCK_URL", DEFAULT_AMQP_URL)
    command.add_argument(
        "--url", default=url, help=f"amqp://HOST[:PORT] or amqps://…; default: $PENSTOCK_URL, else {DEFAULT_AMQP_URL}"
    )
    add_login(command)
    output = "a line of JSON for each message" if name == "receive" else "the counts as JSON on stdout"
    command.add_argument("--json", action="store_true", help=f"{output}, errors as JSON on stderr")
    return command


def _link_priority(text: str) -> int:
    number = whole(text)
    if number not in LINK_PRIORITIES:
        raise argparse.ArgumentTypeError(f"{text} is not from {LINK_PRIORITIES.start} to {LINK_PRIORITIES.stop - 1}")
    return number


def _port(text: str) -> int:
    return listeners.parse_port(text)


def _seconds_or_forever(text: str) -> float:
    if not text.isascii():  # float() accepts the digits of every script
        raise ValueError
    number = float(text)
    if not number >= 0:
        raise argparse.ArgumentTypeError(f"{text} is less than 0")
    return number


def _seconds(text: str) -> float:
    return _seconds_to(MAX_TTL_S, text)


def _delay(text: str) -> float:
    return _seconds_to((MAX_MILLISECONDS - 1) // 1000, text)


def _seconds_to(most: int, text: str) -> float:
    number = _seconds_or_forever(text)
    if not 0 < number <= most:
        raise argparse.ArgumentTypeError(f"{text} is not above 0 and at most {most:,}")
    return number


#: A ttl is milliseconds in 32 bits: 49 days.
MAX_TTL_S = (2**32 - 1) // 1000

_link_priority.__name__ = "whole number"
_port.__name__ = "port"
_delay.__name__ = _seconds.__name__ = _seconds_or_forever.__name__ = "number of seconds"  # for the errors of argparse
