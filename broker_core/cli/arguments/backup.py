"""The arguments of `penstock backup`, `restore` and `check`, which read and write a data directory and speak to no broker."""

from __future__ import annotations

from .parsers import Commands, Parser, client_command, lazily, make_command

_STORE = "s3://BUCKET/FOLDER, gs://…, az://…, or a folder's path; credentials come from the environment"


def add_commands(commands: Commands[Parser]) -> None:
    """Add `backup`, `restore`, `check` and `status`."""
    backup = make_command(
        commands,
        "backup",
        "back a data directory up, also while its broker runs",
        "Puts a consistent picture of a data directory into a store. A second backup to the same place puts what is new, and "
        "takes the place of the first.",
        lazily("backup", "backup"),
    )
    backup.add_argument("--data", metavar="DIR", default="data", help="the data directory; default: data")
    backup.add_argument("--to", metavar="URL", required=True, help=_STORE)

    restore = make_command(
        commands,
        "restore",
        "make a data directory from a copy or a backup",
        "Restores what `copy_url` or `penstock backup` has put into a store into a new directory.",
        lazily("backup", "restore"),
    )
    restore.add_argument("--from", metavar="URL", required=True, dest="source", help=_STORE)
    restore.add_argument("--data", metavar="DIR", required=True, help="a new or empty directory")
    restore.add_argument(
        "--take-over",
        action="store_true",
        help="first stop whoever writes the copy, so that nothing is confirmed there any more: for a machine that is lost",
    )

    check = make_command(
        commands,
        "check",
        "read all of a data directory, and say what is damaged",
        "Reads every byte of a data directory, applies every event since the last snapshot, and changes nothing. Exit code 4 "
        "when something is damaged: the first fault of each file is named, with its offset.",
        lazily("backup", "check"),
    )
    check.add_argument("directory", metavar="DIR")
    for command in (backup, restore, check):
        command.add_argument("--json", action="store_true", help="print JSON to stdout, errors as JSON to stderr")
        command.set_defaults(local=True)

    client_command(
        commands, "journal", "show how large the journal is, what of it is needed, and who keeps it", "status", "journal"
    )
    client_command(
        commands, "status", "show the broker itself: version, addresses, directory, disk, copy, and what is wrong now", "status"
    )
