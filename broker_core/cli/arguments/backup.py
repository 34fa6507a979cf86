"""Arguments of the commands that work on a data directory without a broker, and of `journal` and `status`."""

from __future__ import annotations

from .parsers import Commands, Parser, client_command, lazily, make_command

_STORE = "s3://BUCKET/FOLDER, gs://…, az://…, or a folder's path; credentials are in the environment"


def add_commands(commands: Commands[Parser]) -> None:
    backup = make_command(
        commands,
        "backup",
        "back up a data directory, also while its broker runs",
        "Uploads a consistent state of a data directory to a store. A second backup to the same place uploads only new data and "
        "replaces the first.",
        lazily("backup", "backup"),
    )
    backup.add_argument("--data", metavar="DIR", default="data", help="the data directory; default: data")
    backup.add_argument("--to", metavar="URL", required=True, help=_STORE)

    restore = make_command(
        commands,
        "restore",
        "create a data directory from a copy or a backup",
        "Restores the content of a store, written by `copy_url` or `penstock backup`, to a new directory.",
        lazily("backup", "restore"),
    )
    restore.add_argument("--from", metavar="URL", required=True, dest="source", help=_STORE)
    restore.add_argument("--data", metavar="DIR", required=True, help="a new or empty directory")
    restore.add_argument(
        "--take-over",
        action="store_true",
        help="first stop the broker that writes the copy, so that it confirms no more messages: for a lost machine",
    )

    check = make_command(
        commands,
        "check",
        "read a whole data directory, and report damage",
        "Reads every byte of a data directory and applies every event since the last snapshot, without changes. Exit code 4 "
        "means damage: the output contains the first damage of each file, with its offset.",
        lazily("backup", "check"),
    )
    check.add_argument("directory", metavar="DIR")
    for command in (backup, restore, check):
        command.add_argument("--json", action="store_true", help="print JSON to stdout, errors as JSON to stderr")
        command.set_defaults(local=True)

    client_command(
        commands, "journal", "show the size of the journal, its needed bytes, and the queues that need them", "status", "journal"
    )
    client_command(commands, "status", "show the broker's version, addresses, directory, disk, copy and alarms", "status")
