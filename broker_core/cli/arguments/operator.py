"""Arguments of the commands for operators: `top`, `connection`, `definitions`, `conf`, `doctor`."""

from __future__ import annotations

import argparse
import os
from pathlib import Path

from ..conf import FILES
from .parsers import Commands, Parser, add_login, client_command, lazily, make_command, make_group, positive


def add_commands(commands: Commands[Parser]) -> None:
    _top(commands)
    _connection(commands)
    _definitions(commands)
    _conf(commands)
    _doctor(commands)


def _top(commands: Commands[Parser]) -> None:
    top = client_command(commands, "top", "show queues with their rates, the busiest first, until Ctrl-C", "top", run="run")
    top.add_argument("--interval", type=_seconds, default=2.0, metavar="SECONDS", help="between two screens; default: 2")
    top.add_argument("--count", type=positive, metavar="N", help="stop after N screens; default: no limit")


def _connection(commands: Commands[Parser]) -> None:
    connection = make_group(commands, "connection", "list and close connections")
    text = "list connections: all of them with the right admin on every queue, else your own"
    listed = client_command(connection, "list", text, "connection", run="list_all")
    listed.add_argument("--slow", action="store_true", help="only connections that hold messages for long, or receive none")
    close = client_command(connection, "close", "close a connection; its messages return to their queues", "connection")
    close.add_argument("name", metavar="ID")
    close.add_argument("--reason", metavar="TEXT", help="sent to the client")


def _definitions(commands: Commands[Parser]) -> None:
    definitions = make_group(commands, "definitions", "queues, exchanges and bindings as a file")
    export = client_command(definitions, "export", "write them as JSON, to stdout or a file", "definitions")
    export.add_argument("file", metavar="FILE", nargs="?", type=Path)
    text = "declare the content of a file; equal existing nodes stay unchanged"
    read = client_command(definitions, "import", text, "definitions", run="import_")
    read.add_argument("file", metavar="FILE", type=Path, help="the output of `export`; - is stdin")


def _conf(commands: Commands[Parser]) -> None:
    conf = make_command(
        commands,
        "conf",
        "print a reference file: settings, a systemd unit, alert rules and others",
        "Prints a reference file to stdout, such as penstock conf spark > spark.conf. Without NAME, lists the files.",
        lazily("conf", "run"),
    )
    purposes = (f"{name}: {file.purpose}" for name, file in FILES.items())
    conf.add_argument("name", metavar="NAME", nargs="?", choices=tuple(FILES), help="; ".join(purposes))


def _doctor(commands: Commands[Parser]) -> None:
    doctor = make_command(
        commands,
        "doctor",
        "look for problems: versions, ports, disk, users, TLS, the workers' Python, a broker",
        "Checks this machine, the settings of --data or --config, and the broker of --url. Changes nothing. Exit code 1: a check"
        " has failed.",
        lazily("doctor", "run"),
    )
    doctor.add_argument("--config", type=Path, metavar="FILE", help="the broker's TOML file")
    doctor.add_argument("--data", type=Path, metavar="DIR", help="the broker's data directory")
    doctor.add_argument("--url", default=os.environ.get("PENSTOCK_URL"), help="a broker's address; default: $PENSTOCK_URL")
    add_login(doctor)
    doctor.add_argument("--json", action="store_true", help="print JSON to stdout")
    doctor.set_defaults(local=True)


def _seconds(text: str) -> float:
    number = float(text)
    if not 0.1 <= number <= 3600:
        raise argparse.ArgumentTypeError(f"{text} is not from 0.1 to 3600")
    return number


_seconds.__name__ = "number of seconds"  # for the errors of argparse
