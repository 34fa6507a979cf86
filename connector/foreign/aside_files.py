"""Files of messages that cannot be decoded, in a spool. People may delete them and add other files."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from .spool_files import PART, SpoolFiles

FOLDER = "aside"
# The number of a batch, the first row of a record batch in its file, and the number of messages.
_FILE = re.compile(r"batch-(\d+)/\d+-(\d+)\.arrow")


def file_of(batch: int, row: int, messages: int) -> str:
    return f"{FOLDER}/batch-{batch}/{row}-{messages}.arrow"


def count(store: SpoolFiles, batches: Iterable[int]) -> int:
    """Count the messages of these batches, by batch: a list of all files may be long, and Google's store shows no folders."""
    files = [_FILE.fullmatch(f"batch-{batch}/{name}") for batch in batches for name in store.names(f"{FOLDER}/batch-{batch}")]
    return sum(int(file[2]) for file in files if file is not None)


def clear_and_count(store: SpoolFiles, without: Container[int]) -> int:
    """Delete incomplete files of killed tasks. Count the messages in other files, except for some batches."""
    messages = 0
    for name in store.names(FOLDER, deep=True):
        file = _FILE.match(name)
        if file is None:
            continue
        if file[0] == name:
            messages += 0 if int(file[1]) in without else int(file[2])
        elif name.endswith(PART):
            store.delete(f"{FOLDER}/{name}")
    return messages
