"""Every command, flag and help text."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from pathlib import Path

from ... import __version__
from ...settings import keys
from . import backup, exchange, message, operator, user
from .parsers import EXIT_CODES, Commands, Parser, client_command, lazily, make_command, make_group, natural, positive, sequences


def parser() -> Parser:
    top = Parser(
        prog="penstock",
        description="Message queues into Spark tables and back, exactly once.",
        epilog=EXIT_CODES,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    _serve(commands)
    _queue(commands)
    exchange.add_commands(commands)
    _lease(commands)
    _stage(commands)
    _archive(commands)
    message.add_commands(commands)
    user.add_commands(commands)
    backup.add_commands(commands)
    operator.add_commands(commands)
    _completion(commands)
    return top


def _serve(commands: Commands[Parser]) -> None:
    serve = make_command(
        commands,
        "serve",
        "run a broker until SIGTERM or Ctrl-C",
        "Runs a broker. When it accepts connections, it prints one line of JSON to stdout. The log goes to stderr.",
        lazily("serve", "run"),
    )
    serve.usage = "penstock serve --data DIR [--SETTING VALUE …]"
    serve.add_argument(
        "--config", type=Path, metavar="FILE", help="a TOML file, such as the output of `penstock conf broker`. Flags override it"
    )
    serve.add_argument("--stop-with-stdin", action="store_true", help="also stop when stdin is closed (for a parent process)")
    groups = {title: serve.add_argument_group(title) for title in (*_GROUPS, _OTHERS)}
    for name, kind in keys.KEYS.items():
        title = next((title for title, begins in _GROUPS.items() if name.startswith(begins)), _OTHERS)
        groups[title].add_argument(
            "--" + name.replace("_", "-"),
            metavar=_METAVARS.get(name) or ("BYTES" if name.endswith("bytes") else "SECONDS" if name.endswith("_s") else "N"),
            help=f"{keys.REASONS[name]} Value: {kind.allowed}".replace("%", "%%"),
        )


#: Titles of groups of settings in the help of `serve`, and the begins of their names.
_GROUPS: dict[str, tuple[str, ...]] = {
    "data, address and log": ("data", "host", "log_"),
    "Arrow Flight, for Spark": ("flight_",),
    "AMQP": ("amqp_", "listeners"),
    "HTTP": ("http_",),
    "users and TLS": ("tls_", "users_", "allow_"),
    "declarations at a start": ("queues", "exchanges", "bindings", "policies"),
    "journal and disk": ("fsync", "segment_", "snapshot_", "retention_", "clean_", "free_"),
    "archive": ("archive",),
    "copy in a store": ("copy",),
}
_OTHERS = "limits"

_METAVARS = {
    "data": "DIR",
    "host": "HOST",
    "fsync": "WHEN",
    "log_level": "LEVEL",
    "log_format": "FORMAT",
    "copy": "WHEN",
    "copy_url": "URL",
    "archive": "WHERE",
    **dict.fromkeys(("listeners", "queues", "exchanges", "bindings", "policies"), "JSON"),
    **dict.fromkeys(("flight_tls", "allow_anonymous", "amqp_check_user_id"), "BOOL"),
    "tls_cert_file": "FILE",
    "tls_key_file": "FILE",
    "tls_client_ca_file": "FILE",
    "users_file": "FILE",
}


def _queue(commands: Commands[Parser]) -> None:
    queue = make_group(commands, "queue", "declare, inspect and remove queues")

    declare = client_command(queue, "declare", "declare a queue; a repeated declaration changes nothing", "queue")
    _name(declare)
    declare.add_argument("--type", default="fifo", help="fifo (default), priority or lastvalue")
    _option(declare)

    client_command(queue, "list", "list all queues with their counts", "queue", run="list_all")

    _name(client_command(queue, "stat", "show one queue in numbers", "queue"))

    peek = client_command(queue, "peek", "read messages without acquiring them", "queue")
    _name(peek)
    peek.add_argument("--count", type=positive, default=10, metavar="N", help="at most N messages; default: 10")
    peek.add_argument("--from", type=natural, dest="first", metavar="N", help="the first sequence number")
    peek.add_argument(
        "--states",
        default="available",
        metavar="LIST",
        help="some of available, acquired, archived, comma-separated; default: available",
    )
    peek.add_argument("--selector", metavar="TEXT", help="only messages that match, such as \"colour = 'red' AND size > 5\"")

    _alter(queue)
    _moves(queue)

    text = "archive all waiting messages, also delayed ones, as purged; acquired messages stay"
    _name(client_command(queue, "purge", text, "queue"))

    delete = client_command(queue, "delete", "remove a queue and its messages", "queue")
    _name(delete)
    delete.add_argument("--yes", action="store_true", help="do not ask, even if messages are lost")
    delete.add_argument("--if-empty", action="store_true", help="only if all its messages are settled")
    delete.add_argument("--if-unused", action="store_true", help="only if it has no consumer and no lease")
    delete.add_argument("--force", action="store_true", help="even if consumers hold messages, which are lost")


def _option(command: Parser) -> None:
    text = "an option of the queue, see below; may be repeated"
    command.add_argument("--option", action="append", default=[], metavar="K=V", help=text)
    command.appendix, command.options = _options, _option_names


def _options() -> str:
    from ...engine.model.options import described  # imported late because it needs numpy

    return "options of queues:\n" + described()


def _option_names() -> Iterable[str]:
    from ...engine.model.options import OPTIONS

    return OPTIONS


def _alter(queue: Commands[Parser]) -> None:
    alter = client_command(queue, "alter", "change options of a queue", "moves")
    _name(alter)
    _option(alter)
    alter.add_argument("--reset", action="append", default=[], metavar="K", help="set an option back to its default")

    _name(client_command(queue, "pause", "stop deliveries until `queue resume`; messages are still accepted", "moves"))
    _name(client_command(queue, "resume", "start deliveries again", "moves"))


def _moves(queue: Commands[Parser]) -> None:
    for name, text in (
        ("move", "move waiting messages to another queue, in order; delayed ones keep their time"),
        ("copy", "copy waiting messages to another queue; their bodies are stored once"),
    ):
        command = client_command(queue, name, text, "moves")
        command.add_argument("name", metavar="SOURCE")
        command.add_argument("target", metavar="TARGET")
        command.add_argument("--limit", type=positive, metavar="N", help="at most N messages; default: all that wait now")
        command.add_argument("--from", type=natural, dest="first", metavar="N", help="the first sequence number")
        command.add_argument("--to", type=natural, dest="last", metavar="N", help="the last sequence number")

    text = "archive a message that is damaged or unusable, even if it is acquired"
    discard = client_command(queue, "discard", text, "moves")
    _name(discard)
    discard.add_argument("--sequence", type=natural, required=True, metavar="N", help="the message's sequence number")
    discard.add_argument("--to", type=natural, dest="last", metavar="N", help="the last sequence number of several messages")
    discard.add_argument("--error", metavar="TEXT", help="the reason, which the archive stores")

    redrive = client_command(queue, "redrive", "return dead letters to the queues that they came from", "moves")
    _name(redrive)
    redrive.add_argument("--limit", type=positive, metavar="N", help="at most N messages; default: all that wait now")
    which = redrive.add_mutually_exclusive_group()
    which.add_argument(
        "--sequence",
        type=sequences,
        action="append",
        default=[],
        metavar="N[-M]",
        help="only the message with this sequence number, or from N to M; may be repeated",
    )
    which.add_argument("--selector", metavar="TEXT", help="only messages that match, such as \"colour = 'red' AND size > 5\"")


def _lease(commands: Commands[Parser]) -> None:
    lease = make_group(commands, "lease", "show the leases of Spark queries, and end their batches")

    client_command(lease, "list", "list all leases: the messages of each query, and its last request", "lease", run="list_all")

    release = client_command(lease, "release", "end the batch that a lease holds", "lease")
    _name(release)
    how = release.add_mutually_exclusive_group(required=True)
    how.add_argument(
        "--settle",
        dest="how",
        action="store_const",
        const="settle",
        help="settle its messages, because the target table contains them",
    )
    how.add_argument(
        "--return",
        dest="how",
        action="store_const",
        const="return",
        help="return its messages to the queue in their order, to be read again",
    )

    settle = client_command(lease, "settle", "settle one message of the batch, such as a poison message", "lease")
    _name(settle)
    settle.add_argument("--sequence", type=natural, required=True, metavar="N", help="the message's sequence number")
    settle.add_argument("--outcome", required=True, choices=["accepted", "rejected", "released", "modified"])
    settle.add_argument("--error", metavar="TEXT", help="the reason, which the archive stores")

    _name(client_command(lease, "delete", "delete a lease whose query has ended permanently", "lease"))


def _stage(commands: Commands[Parser]) -> None:
    stage = make_group(commands, "stage", "list and discard stages, the unpublished messages of writes")

    client_command(stage, "list", "list all writes that wait for their publish, with their size and age", "stage", run="list_all")

    text = "discard the staged messages of a write whose driver has ended; they were never in a queue"
    _name(client_command(stage, "discard", text, "stage"))


def _archive(commands: Commands[Parser]) -> None:
    text = "show the place of the archive, the messages that are not recorded yet, and errors"
    client_command(commands, "archive", text, "archive", run="status")


def _completion(commands: Commands[Parser]) -> None:
    text = "print a script that completes this command line in a shell"
    completion = make_command(
        commands,
        "completion",
        text,
        'Prints a script for the shell. In ~/.bashrc: eval "$(penstock completion bash)". For zsh likewise, after compinit. For'
        " fish: penstock completion fish > ~/.config/fish/completions/penstock.fish.",
        lazily("completion", "run"),
    )
    completion.add_argument("shell", choices=["bash", "zsh", "fish"])


def _name(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME")
