"""Arguments of `top`, `connection`, `definitions`, `conf` and `doctor`."""

from __future__ import annotations

import argparse
from pathlib import Path

from ..conf import FILES
from .parsers import Commands, add_login, add_users_file, client_command, flag, lazily, make_command, make_group, option, positive


def add_commands(commands: Commands) -> None:
    top = client_command(commands, "top", "show queues with their rates, the busiest first, until Ctrl-C", "top", run="run")
    option(top, "--interval", "SECONDS", "between two screens; default: 2", type=_seconds, default=2.0)
    option(top, "--count", "N", "stop after N screens; default: no limit", type=positive)

    connection = make_group(commands, "connection", "list and close connections")
    text = "list connections: all of them with the right admin on every queue, else your own"
    connections = client_command(connection, "list", text, "connection", run="list_all")
    flag(connections, "--slow", "only connections that hold messages for long, or receive none")
    flag(connections, "--consumers", "show each consumer: selector, priority, groups, credit, unsettled, rates, last settlement")
    close = client_command(
        connection, "close", "close a connection; its messages return to their queues", "connection", name="ID"
    )
    option(close, "--reason", "TEXT", "sent to the client")

    definitions = make_group(commands, "definitions", "queues, exchanges and bindings as a file")
    export = client_command(definitions, "export", "write them as JSON, to stdout or a file", "definitions.command")
    export.add_argument("file", metavar="FILE", nargs="?", type=Path)
    add_users_file(export, required=False, text="also export the users, with password hashes, and the permissions of")
    text = "declare the content of a file; equal existing nodes stay unchanged"
    read = client_command(definitions, "import", text, "definitions.command", run="import_")
    option(read, "file", "FILE", "the output of `export`, RabbitMQ's definitions, or Artemis's broker.xml; - is stdin", type=Path)
    option(read, "--virtual-host", "NAME", "the virtual host, if a file of RabbitMQ has several")
    add_users_file(read, required=False, text="also add users and permissions to")

    text = "print a reference file: settings, a systemd unit, alert rules and others"
    description = "Prints a reference file to stdout, such as penstock conf spark > spark.conf. Without NAME, lists the files."
    conf = make_command(commands, "conf", text, description, lazily("conf", "run"))
    purposes = "; ".join(f"{name}: {purpose}" for name, (_, purpose) in FILES.items())
    option(conf, "name", "NAME", purposes, nargs="?", choices=tuple(FILES))
    text = "with NAME spark: the version of Spark, such as 4.1. Default: that of the installed PySpark"
    option(conf, "--spark", "VERSION", text)

    text = "look for problems: versions, ports, disk, users, TLS, the workers' Python, a broker"
    description = (
        "Checks this machine, the settings of --data or --config, and the broker of --url. Changes nothing. Exit code 1: a check"
        " has failed."
    )
    doctor = make_command(commands, "doctor", text, description, lazily("doctor", "run"))
    option(doctor, "--config", "FILE", "the broker's TOML file", type=Path)
    option(doctor, "--data", "DIR", "the broker's data directory", type=Path)
    add_login(doctor, None, "a broker's address; default: $PENSTOCK_URL")
    flag(doctor, "--json", "print JSON to stdout")
    doctor.set_defaults(local=True)


def _seconds(text: str) -> float:
    number = float(text)
    if not 0.1 <= number <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not from 0.1 to 3600")
    return number


_seconds.__name__ = "number of seconds"  # for the errors of argparse
