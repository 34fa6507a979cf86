"""The whole command line."""

from __future__ import annotations

import argparse
from pathlib import Path

from ... import __version__, moments
from ...settings import keys, kinds
from . import backup, exchange, message, operator, user
from . import parsers as p


def parser() -> p.Parser:
    top = p.Parser(
        prog="penstock",
        description="Message queues into Spark tables and back, exactly once.",
        epilog=p.EXIT_CODES,
        allow_abbrev=False,
    )
    top.add_argument("--version", action="version", version=f"penstock {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", required=True)
    for add_commands in (
        _serve,
        _queue,
        exchange.add_commands,
        _lease,
        _stage,
        _archive,
        _trace,
        _explain,
        _audit,
        _events,
        message.add_commands,
        user.add_commands,
        backup.add_commands,
        operator.add_commands,
        _completion,
    ):
        add_commands(commands)
    return top


def _serve(commands: p.Commands) -> None:
    text = "Runs a broker. When it accepts connections, it prints one line of JSON to stdout. The log goes to stderr."
    serve = p.make_command(commands, "serve", "run a broker until SIGTERM or Ctrl-C", text, p.lazily("serve", "run"))
    serve.usage = "penstock serve --data DIR [--SETTING VALUE …]"
    text = "a TOML file, such as the output of `penstock conf broker`. Flags override it"
    p.option(serve, "--config", "FILE", text, type=Path)
    p.flag(serve, "--stop-with-stdin", "also stop when stdin is closed (for a parent process)")
    groups = {title: serve.add_argument_group(title) for title in (*_GROUPS, _OTHERS)}
    for name, kind in keys.KEYS.items():
        title = next((title for title, begins in _GROUPS.items() if name.startswith(begins)), _OTHERS)
        text = f"{keys.REASONS[name]} Value: {kind.allowed}".replace("%", "%%")
        p.option(groups[title], "--" + name.replace("_", "-"), _metavar(name, kind), text)


def _metavar(name: str, kind: kinds.Kind) -> str:
    by_name = "BYTES" if name.endswith(("bytes", "bandwidth")) else "SECONDS" if name.endswith("_s") else "N"
    return _METAVARS.get(name) or _METAVARS_BY_KIND.get(kind) or by_name


#: Titles of groups of settings in the help of `serve`, and how their names begin.
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
    "fsync": "WHEN",
    "log_level": "LEVEL",
    "log_format": "FORMAT",
    "copy": "WHEN",
    "copy_url": "URL",
    "archive": "WHERE",
    "archive_message": "CONTENT",
    **dict.fromkeys(("listeners", "queues", "exchanges", "bindings", "policies"), "JSON"),
}
_METAVARS_BY_KIND = {
    kinds.HOST: "HOST",
    kinds.HOST_OR_UNSET: "HOST",
    kinds.NAMES: "NAMES",
    kinds.SWITCH: "BOOL",
    kinds.FILE: "FILE",
}


def _queue(commands: p.Commands) -> None:
    queue = p.make_group(commands, "queue", "declare, inspect and remove queues")

    text = "declare a queue; a repeated declaration changes nothing"
    declare = p.client_command(queue, "declare", text, "queue", name="NAME")
    declare.add_argument("--type", default="fifo", help="fifo (default), priority or lastvalue")
    _option(declare)

    p.client_command(queue, "list", "list all queues with their counts", "queue", run="list_all")

    p.client_command(queue, "stat", "show one queue in numbers", "queue", name="NAME")

    peek = p.client_command(queue, "peek", "read messages without acquiring them", "queue", name="NAME")
    p.option(peek, "--count", "N", "at most N messages; default: 10", type=p.positive, default=10)
    p.option(peek, "--from", "N", "the first sequence number", type=p.natural, dest="first")
    text = "some of available, acquired, delayed, deferred, archived, comma-separated; default: available"
    p.option(peek, "--states", "LIST", text, default="available")
    p.option(peek, "--selector", "TEXT", p.SELECTOR)
    moments.add_flags(peek, "time of arrival")

    alter = p.client_command(queue, "alter", "change options of a queue", "queue", name="NAME")
    _option(alter)
    p.repeated(alter, "--reset", "K", "set an option back to its default")

    text = "stop deliveries until `queue resume`; messages are still accepted"
    p.client_command(queue, "pause", text, "queue", name="NAME")
    p.client_command(queue, "resume", "start deliveries again", "queue", name="NAME")
    _moves(queue)

    text = "archive all waiting messages, also delayed and deferred ones, as purged; acquired messages stay"
    p.client_command(queue, "purge", text, "queue", name="NAME")

    delete = p.client_command(queue, "delete", "remove a queue and its messages", "queue", name="NAME")
    p.flag(delete, "--yes", "do not ask, even if messages are lost")
    p.flag(delete, "--if-empty", "only if all its messages are settled")
    p.flag(delete, "--if-unused", "only if it has no consumer and no lease")
    p.flag(delete, "--force", "even if consumers hold messages, which are lost")


def _option(command: p.Parser) -> None:
    p.repeated(command, "--option", "K=V", "an option of the queue, see below; may be repeated")
    command.has_options = True


def _moves(queue: p.Commands) -> None:
    limit = "at most N messages; default: all that wait now"
    for name, text in (
        ("move", "move waiting messages to another queue, in order; delayed ones keep their time, deferred ones wait there"),
        ("copy", "copy waiting messages to another queue; their bodies are stored once"),
    ):
        command = p.client_command(queue, name, text, "moves", name="SOURCE", target="TARGET")
        p.option(command, "--limit", "N", limit, type=p.positive)
        p.option(command, "--from", "N", "the first sequence number", type=p.natural, dest="first")
        p.option(command, "--to", "N", "the last sequence number", type=p.natural, dest="last")

    text = "archive a message that is damaged or unusable, even if it is acquired"
    discard = p.client_command(queue, "discard", text, "moves", name="NAME")
    p.option(discard, "--sequence", "N", "the message's sequence number", type=p.natural, required=True)
    p.option(discard, "--to", "N", "the last sequence number of several messages", type=p.natural, dest="last")
    p.option(discard, "--error", "TEXT", "the reason, which the archive stores")

    text = "return dead letters to the queues that they came from"
    redrive = p.client_command(queue, "redrive", text, "moves", name="NAME")
    p.option(redrive, "--limit", "N", limit, type=p.positive)
    which = redrive.add_mutually_exclusive_group()
    text = "only the message with this sequence number, or from N to M; may be repeated"
    p.repeated(which, "--sequence", "N[-M]", text, type=p.sequences)
    p.option(which, "--selector", "TEXT", p.SELECTOR)
    p.option(redrive, "--reason", "NAME", "only dead letters with this reason, as `queue dead-letters` lists it")
    p.option(redrive, "--error", "TEXT", "only dead letters with this whole error text; needs --reason")

    text = "count the dead letters of a queue by reason and error text"
    p.client_command(queue, "dead-letters", text, "moves", "dead_letters", name="NAME")

    text = "replace a waiting message by an edited copy at the end of a queue; both happen, or neither"
    replace = p.client_command(queue, "replace", text, "moves", name="NAME")
    p.option(replace, "--sequence", "N", "the message's sequence number", type=p.natural, required=True)
    p.option(replace, "--to", "QUEUE", "the queue for the copy; default: the same queue", dest="target")
    p.option(replace, "--body", "TEXT", "the new body; default: unchanged")
    p.option(replace, "--subject", "TEXT", "the new subject; default: unchanged")
    p.repeated(replace, "--property", "K=V", "all application properties of the copy; default: unchanged")


def _lease(commands: p.Commands) -> None:
    lease = p.make_group(commands, "lease", "show the leases of Spark queries, and end their batches")

    p.client_command(lease, "list", "list all leases: the messages of each query, and its last request", "lease", run="list_all")

    release = p.client_command(lease, "release", "end the batch that a lease holds", "lease", name="NAME")
    how = release.add_mutually_exclusive_group(required=True)
    for const, text in (
        ("settle", "settle its messages, because the target table contains them"),
        ("return", "return its messages to the queue in their order, to be read again"),
    ):
        how.add_argument(f"--{const}", dest="how", action="store_const", const=const, help=text)

    text = "settle one message of the batch, such as a poison message"
    settle = p.client_command(lease, "settle", text, "lease", name="NAME")
    p.option(settle, "--sequence", "N", "the message's sequence number", type=p.natural, required=True)
    settle.add_argument("--outcome", required=True, choices=["accepted", "rejected", "released", "modified"])
    p.option(settle, "--error", "TEXT", "the reason, which the archive stores")

    p.client_command(lease, "delete", "delete a lease whose query has ended permanently", "lease", name="NAME")


def _stage(commands: p.Commands) -> None:
    stage = p.make_group(commands, "stage", "list and discard stages, the unpublished messages of writes")

    text = "list all writes that wait for their publish, with their size and age"
    p.client_command(stage, "list", text, "stage", run="list_all")

    text = "discard the staged messages of a write whose driver has ended; they were never in a queue"
    p.client_command(stage, "discard", text, "stage", name="NAME")


def _archive(commands: p.Commands) -> None:
    text = "show the place of the archive, the messages that are not recorded yet, and errors"
    p.client_command(commands, "archive", text, "status")


def _trace(commands: p.Commands) -> None:
    text = "show where a message is, and what happened to it: in queues, dead letters and the archive"
    trace = p.client_command(commands, "trace", text, "trace", run="run")
    p.option(trace, "id", "ID", "a message id or correlation id", nargs="?")
    p.option(trace, "--sequence", "N", "the message with this sequence number in --queue", type=p.natural)
    p.option(trace, "--queue", "NAME", "the queue of --sequence; with an ID or --where, the only queue that is searched")
    p.option(trace, "--where", "SELECTOR", p.SELECTOR)
    p.option(trace, "--count", "N", "show at most N places of messages; default: 100", type=p.positive, default=100)


def _explain(commands: p.Commands) -> None:
    explain = p.make_group(commands, "explain", "show why messages wait")
    text = "show the waiting messages of a queue, and for each consumer why it does not receive the next one"
    p.client_command(explain, "queue", text, "explain", name="NAME")


def _audit(commands: p.Commands) -> None:
    text = "show the changes of the broker and their users: declared, purged, moved, deleted, released, refused"
    audit = p.client_command(commands, "audit", text, "audit", run="run")
    p.option(audit, "--queue", "NAME", "only actions on this queue")
    p.option(audit, "--by", "NAME", "only actions of this user")
    p.option(audit, "--action", "NAME", "only this action, such as purge or queue.purge")
    p.option(audit, "--outcome", "OUTCOME", "only done, refused or failed actions", choices=["done", "refused", "failed"])
    moments.add_flags(audit, "action")
    p.option(audit, "--count", "N", "show the newest N entries; default: 100", type=p.positive, default=100)


def _events(commands: p.Commands) -> None:
    text = "show the event messages of the broker: alarms, dead letters, leases taken over, closed connections"
    events = p.client_command(commands, "events", text, "events", run="run")
    p.flag(events, "--follow", "wait for further events until Ctrl-C")
    p.option(events, "--count", "N", "show the newest N events first; default: 20", type=p.positive, default=20)


def _print_script(args: argparse.Namespace) -> int:
    from argcomplete.shell_integration import shellcode

    print(shellcode(["penstock"], shell=args.shell))
    return 0


def _completion(commands: p.Commands) -> None:
    text = "print a script that completes this command line in a shell"
    description = (
        'Prints a script for the shell. In ~/.bashrc: eval "$(penstock completion bash)". For zsh likewise, after compinit. For'
        " fish: penstock completion fish > ~/.config/fish/completions/penstock.fish."
    )
    completion = p.make_command(commands, "completion", text, description, _print_script)
    completion.add_argument("shell", choices=["bash", "zsh", "fish"])
