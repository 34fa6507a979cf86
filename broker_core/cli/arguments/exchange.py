"""Arguments of `penstock exchange …`."""

from __future__ import annotations

from .parsers import Commands, Parser, client_command, make_group

_TYPES = "direct (equal routing keys), topic (patterns: * is one word, # any number), fanout (everything), headers"


def add_commands(commands: Commands[Parser]) -> None:
    exchange = make_group(commands, "exchange", "declare exchanges and bind them to queues")

    text = "declare an exchange; a repeated declaration changes nothing"
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
    client_command(exchange, "list", "list all exchanges with their bindings", "exchange", run="list_all")

    bind = _command(exchange, "bind", "route messages of an exchange to a queue; a repeated binding changes nothing")
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
    bind.add_argument("--selector", metavar="TEXT", help="a JMS selector that the messages must also match")

    unbind = _command(exchange, "unbind", "remove bindings of an exchange to a queue")
    unbind.add_argument("queue", metavar="QUEUE")
    unbind.add_argument("--key", help="only the bindings with this key or pattern; default: all bindings to this queue")


def _command(commands: Commands[Parser], name: str, text: str) -> Parser:
    command = client_command(commands, name, text, "exchange")
    command.add_argument("name", metavar="EXCHANGE" if name in ("bind", "unbind") else "NAME")
    return command
