"""The file `lineage`."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker_core.errors import StorageError
from penstock.broker_core.journal import LocalDisk
from penstock.broker_core.journal.lineage import NAME, Lineage, read, write


def test_another_version_is_refused_by_its_number(tmp_path: Path) -> None:
    disk = LocalDisk(tmp_path)
    write(disk, Lineage("first"))
    assert read(disk, "first") == Lineage("first")
    (tmp_path / NAME).write_text((tmp_path / NAME).read_text().replace('"version": 1', '"version": 2'))
    with pytest.raises(StorageError, match="format version 2, this program reads 1"):
        read(disk, "first")
    disk.close()
