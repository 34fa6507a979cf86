"""Arguments of `penstock send`, `penstock receive` and `penstock work`."""

from __future__ import annotations

import argparse
from pathlib import Path

from ...quantities import MAX_MILLISECONDS
from ...settings import listeners
from . import parsers as p

DEFAULT_AMQP_URL = "amqp://127.0.0.1:5672"
#: As in `amqp_plane.loop.interest`, whose import is slow.
LINK_PRIORITIES = range(-128, 128)


def add_commands(commands: p.Commands) -> None:
    _send(commands)
    _receive(commands)
    _work(commands)


def _work(commands: p.Commands) -> None:
    text = "handle the messages of queues with the functions of a Python module"
    description = (
        "Runs functions decorated with @penstock.worker, each on its queue, until SIGTERM or Ctrl-C. A message is accepted when"
        " its function returns. If the function raises an exception, the message is delivered again later. A stop waits for"
        " running functions."
    )
    work = p.make_command(commands, "work", text, description, p.lazily("work", "run"))
    p.option(work, "workers", "MODULE:FUNCTION", "such as shop.orders:handle, relative to this folder", nargs="+")
    work.set_defaults(more=p.extending("workers", str))
    p.add_login(work, DEFAULT_AMQP_URL, f"amqp://… or amqps://…; default: $PENSTOCK_URL, else {DEFAULT_AMQP_URL}")
    text = "longest wait of a stop for running functions; default: 30"
    p.option(work, "--grace", "SECONDS", text, type=_seconds_or_forever, default=30.0)
    text = "serve metrics for Prometheus at this port of this machine; 0: a free one, which the log contains"
    p.option(work, "--metrics-port", "N", text, type=_port)


def _send(commands: p.Commands) -> None:
    description = (
        "Sends each line of the files, or of stdin, as a message without its line end. An empty line is an empty message."
        " Exit code 0 means that the broker has confirmed every message."
    )
    send = _amqp_command(commands, "send", "send lines, or whole files, as messages", description)
    p.option(send, "files", "FILE", "files to read; default: stdin", nargs="*", type=Path)
    send.set_defaults(more=p.extending("files", Path))
    p.flag(send, "--whole", "send each file as one message")
    p.repeated(send, "--property", "K=V", "an application property of every message, a string; may be repeated")
    p.option(send, "--content-type", "TYPE", "of every message, such as application/json")
    text = "whether the messages must survive a restart of the broker"
    send.add_argument("--durable", action=argparse.BooleanOptionalAction, default=True, help=text)
    p.option(send, "--ttl", "SECONDS", "time after which the messages expire; default: never", type=_seconds)
    p.option(send, "--delay", "SECONDS", "time before the messages are delivered; default: none", type=_delay)
    p.option(send, "--priority", "N", "0 to 9; default: none, which counts as 4", type=p.whole, choices=range(10))
    p.option(send, "--subject", "TEXT", "of every message; also the routing key for an exchange without one")
    p.option(send, "--group-id", "TEXT", "the message group of every message")
    p.option(send, "--message-id", "TEXT", "of every message; a queue that detects duplicates accepts one message for each id")


def _receive(commands: p.Commands) -> None:
    description = (
        "Writes the body of each message as a line to stdout, then accepts the message. Messages that were not written return"
        " to the queue. A message in a pipe is accepted after its reader has read it."
    )
    receive = _amqp_command(commands, "receive", "receive messages, and write their bodies to stdout or to files", description)
    p.option(receive, "--count", "N", "stop after N messages; default: no limit", type=p.positive)
    text = "stop when no message arrives for this time; inf: never; default: 1"
    p.option(receive, "--wait", "SECONDS", text, type=_seconds_or_forever, default=1.0)
    p.flag(receive, "--browse", "read copies: the messages stay in the queue")
    p.option(receive, "--selector", "TEXT", p.SELECTOR)
    p.flag(receive, "--exclusive", "be the only consumer of the queue")
    text = "-128 to 127; consumers with a lower priority get the remaining messages; default: 0"
    p.option(receive, "--priority", "N", text, type=_link_priority)
    p.option(receive, "--output", "DIR", "write each message to a numbered file in DIR; default: -, lines on stdout", default="-")


def _amqp_command(commands: p.Commands, name: str, text: str, description: str) -> p.Parser:
    command = p.make_command(commands, name, text, description, p.lazily(name, "run"))
    command.add_argument("queue", metavar="QUEUE")
    p.add_login(command, DEFAULT_AMQP_URL, f"amqp://HOST[:PORT] or amqps://…; default: $PENSTOCK_URL, else {DEFAULT_AMQP_URL}")
    output = "a line of JSON for each message" if name == "receive" else "the counts as JSON on stdout"
    p.flag(command, "--json", f"{output}, errors as JSON on stderr")
    return command


def _link_priority(text: str) -> int:
    number = p.whole(text)
    if number not in LINK_PRIORITIES:
        raise argparse.ArgumentTypeError(f"{text} is not from {LINK_PRIORITIES.start} to {LINK_PRIORITIES.stop - 1}")
    return number


def _port(text: str) -> int:
    return listeners.parse_port(text)


def _seconds_or_forever(text: str) -> float:
    if not text.isascii():  # float() accepts digits of every script
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
