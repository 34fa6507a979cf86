"""Messages that cannot be decoded: files below the folder `aside` of a spool, for people, who may delete them and add others."""

from __future__ import annotations

import re
from collections.abc import Container, Iterable

from .store import PART, Store

FOLDER = "aside"
# Batch, row of the first message of a record batch, messages in the file.
_FILE = re.compile(r"batch-(\d+)/\d+-(\d+)\.arrow")


def file_of(batch: int, row: int, messages: int) -> str:
    """Return the name of the file with what cannot be decoded in the record batch of a batch that begins at this row."""
    return f"{FOLDER}/batch-{batch}/{row}-{messages}.arrow"


def count(store: Store, batches: Iterable[int]) -> int:
    """Count the messages of some batches that are set aside. Other batches' files are not looked at: there may be many.

    Nor is it asked which folders there are: Google's store shows none.
    """
    found = [_FILE.fullmatch(f"batch-{batch}/{name}") for batch in batches for name in store.names(f"{FOLDER}/batch-{batch}")]
    return sum(int(file[2]) for file in found if file is not None)


def clear_and_count(store: Store, without: Container[int]) -> int:
    """Delete what killed tasks have left half-written. Count the messages that are set aside, without those of some batches."""
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
