"""The file `lineage`: both of its formats."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from penstock.broker_core.errors import StorageError
from penstock.broker_core.journal import LocalDisk
from penstock.broker_core.journal.lineage import NAME, Lineage, read, write


@pytest.mark.parametrize(
    ("former", "history"),
    [(None, {}), ({"7": [4, "first"]}, {"7": (("first", 4),)})],
)
def test_the_former_format_is_read(tmp_path: Path, former: object, history: object) -> None:
    """U7: what had begun at the restore, and all before it, is the former lineage's."""
    disk = LocalDisk(tmp_path)
    (tmp_path / NAME).write_text(json.dumps({"version": 1, "name": "second", "parent": None, "begun": former}))
    found = read(disk, "first")
    assert (found.name, found.parent, found.history) == ("second", None, history)
    write(disk, found)
    assert read(disk, "first") == found
    assert json.loads((tmp_path / NAME).read_text())["version"] == 2
    disk.close()


def test_a_newer_format_is_refused_by_its_number(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    write(disk, Lineage("first"))
    (tmp_path / NAME).write_text((tmp_path / NAME).read_text().replace('"version": 2', '"version": 3'))
    with pytest.raises(StorageError, match="format version 3, this program reads 2"):
        read(disk, "first")
    disk.close()
