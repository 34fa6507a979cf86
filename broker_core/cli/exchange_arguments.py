"""The arguments of `penstock exchange …`."""

from __future__ import annotations

import argparse

from penstock.broker_core.cli import arguments

_TYPES = "direct (the routing key as it is), topic (patterns: * is one word, # any number), fanout (everything), headers"


def add_commands(commands: arguments.Commands[argparse.ArgumentParser]) -> None:
    exchange = arguments.make_group(commands, "exchange", "declare and bind exchanges, which lead messages to queues")

    text = "make an exchange; nothing happens when it is there already, declared alike"
    declare = _command(exchange, "declare", text)
    declare.add_argument("--type", default="direct", help=f"{_TYPES}; default: direct")
    declare.add_argument(
        "--option",
        action="append",
        default=[],
        metavar="K=V",
        help="unroutable=refuse|drop|alternate, alternate=NAME (a queue or an exchange), lifetime=…; may be repeated",
    )

    _command(exchange, "delete", "remove an exchange and its bindings; the queues stay")
    arguments.client_command(exchange, "list", "all exchanges with their bindings", "exchange", run="list_all")

    bind = _command(exchange, "bind", "lead messages to a queue; nothing happens when they are led there alike already")
    bind.add_argument("queue", metavar="QUEUE")
    bind.add_argument("--key", default="", help="the routing key, or the pattern of a topic exchange")
    bind.add_argument(
        "--argument",
        action="append",
        default=[],
        metavar="K=V",
        help="of a headers exchange: an application property and the value it must have (null: any), or"
        " x-match=all|any|all-with-x|any-with-x; may be repeated",
    )
    bind.add_argument("--selector", metavar="TEXT", help="a JMS selector that the messages must match, too")

    unbind = _command(exchange, "unbind", "lead messages to a queue no longer")
    unbind.add_argument("queue", metavar="QUEUE")
    unbind.add_argument("--key", help="only the bindings with this key or pattern; default: all of this queue")


def _command(commands: arguments.Commands[argparse.ArgumentParser], name: str, text: str) -> argparse.ArgumentParser:
    command = arguments.client_command(commands, name, text, "exchange")
    command.add_argument("name", metavar="EXCHANGE" if name in ("bind", "unbind") else "NAME")
    return command
