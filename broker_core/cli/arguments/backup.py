"""Arguments of commands on a data directory, and of `journal` and `status`."""

from __future__ import annotations

from .parsers import JSON, Commands, client_command, flag, lazily, make_command, option

_STORE = "s3://BUCKET/FOLDER, gs://…, az://…, or a folder's path; credentials are in the environment"


def add_commands(commands: Commands) -> None:
    text = "back up a data directory, also while its broker runs"
    description = (
        "Uploads a consistent state of a data directory to a store. A second backup to the same place uploads only new data and "
        "replaces the first."
    )
    backup = make_command(commands, "backup", text, description, lazily("backup", "backup"))
    option(backup, "--data", "DIR", "the data directory; default: data", default="data")
    option(backup, "--to", "URL", _STORE, required=True)

    text = "create a data directory from a copy or a backup"
    description = "Restores the content of a store, written by `copy_url` or `penstock backup`, to a new directory."
    restore = make_command(commands, "restore", text, description, lazily("backup", "restore"))
    option(restore, "--from", "URL", _STORE, required=True, dest="source")
    option(restore, "--data", "DIR", "a new or empty directory", required=True)
    text = "first stop the broker that writes the copy, so that it confirms no more messages: for a lost machine"
    flag(restore, "--take-over", text)

    text = "read a whole data directory, and report damage"
    description = (
        "Reads every byte of a data directory and applies every event since the last snapshot, without changes. Exit code 4 "
        "means damage: the output contains the first damage of each file, with its offset."
    )
    check = make_command(commands, "check", text, description, lazily("backup", "check"))
    check.add_argument("directory", metavar="DIR")
    for command in (backup, restore, check):
        flag(command, "--json", JSON)
        command.set_defaults(local=True)

    text = "show the size of the journal, its needed bytes, and the queues that need them"
    client_command(commands, "journal", text, "status")
    client_command(commands, "status", "show the broker's version, addresses, directory, disk, copy and alarms", "status")
