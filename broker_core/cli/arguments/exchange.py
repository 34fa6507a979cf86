"""Arguments of `penstock exchange …`."""

from __future__ import annotations

from .parsers import Commands, client_command, make_group, option, repeated

_TYPES = "direct (equal routing keys), topic (patterns: * is one word, # any number), fanout (everything), headers"


def add_commands(commands: Commands) -> None:
    exchange = make_group(commands, "exchange", "declare exchanges and bind them to queues")

    text = "declare an exchange; a repeated declaration changes nothing"
    declare = client_command(exchange, "declare", text, "exchange", name="NAME")
    declare.add_argument("--type", default="direct", help=f"{_TYPES}; default: direct")
    text = "unroutable=refuse|drop|alternate, alternate=NAME (a queue or an exchange), lifetime=…; may be repeated"
    repeated(declare, "--option", "K=V", text)

    text = "remove an exchange and its bindings; the queues stay"
    client_command(exchange, "delete", text, "exchange", name="NAME")
    client_command(exchange, "list", "list all exchanges with their bindings", "exchange", run="list_all")

    text = "route messages of an exchange to a queue; a repeated binding changes nothing"
    bind = client_command(exchange, "bind", text, "exchange", name="EXCHANGE", queue="QUEUE")
    bind.add_argument("--key", default="", help="the routing key, or the pattern of a topic exchange")
    text = (
        "of a headers exchange: an application property and the value it must have (null: any), or"
        " x-match=all|any|all-with-x|any-with-x; may be repeated"
    )
    repeated(bind, "--argument", "K=V", text)
    option(bind, "--selector", "TEXT", "a JMS selector that the messages must also match")

    text = "remove bindings of an exchange to a queue"
    unbind = client_command(exchange, "unbind", text, "exchange", name="EXCHANGE", queue="QUEUE")
    unbind.add_argument("--key", help="only the bindings with this key or pattern; default: all bindings to this queue")
