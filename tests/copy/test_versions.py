"""Version 2 of the formats of a copy: it reads version 1, and a program of version 1 refuses it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

from penstock.broker_core.copy import chunks, marker, restoring
from penstock.broker_core.copy.marker import Marker, Restored
from penstock.broker_core.errors import StorageError
from penstock.broker_core.journal import LocalDisk

from ..journal.lying_disk import LyingDisk
from ..stores.faulty_store import FaultyStore
from .helpers import copied, restored

CONTENTS = [(b"meta %d" % number, bytes([number]) * 2000) for number in range(5)]
MARKER = Marker(("life-1", "life-2"), Restored("life-0", 7))
REFUSAL = "written in format version 2, this program reads 1"


@pytest.fixture
def introduce_2(monkeypatch: pytest.MonkeyPatch) -> Callable[[ModuleType, int], None]:
    return lambda module, version: monkeypatch.setattr(module, "VERSION", version)


def test_a_marker(tmp_path: Path, introduce_2: Callable[[ModuleType, int], None]) -> None:
    disk = LocalDisk(tmp_path)
    marker.write(disk, MARKER)
    introduce_2(marker, 2)
    assert marker.read(disk) == MARKER
    marker.write(disk, MARKER)
    introduce_2(marker, 1)
    with pytest.raises(StorageError, match=REFUSAL):
        marker.read(disk)
    disk.close()


def test_a_chunk(tmp_path: Path, introduce_2: Callable[[ModuleType, int], None]) -> None:
    store = FaultyStore()
    disk = LyingDisk()
    with copied(disk, store) as running:
        running.append(*CONTENTS)
        running.until_copied()
    introduce_2(chunks, 2)
    assert restored(store, tmp_path / "of version 1")[0] == CONTENTS
    more = (b"of version 2", b"")
    with copied(disk, store) as running:
        running.append(more)
        running.until_copied()
    assert restored(store, tmp_path / "of both")[0] == [*CONTENTS, more]
    introduce_2(chunks, 1)
    with pytest.raises(StorageError, match=REFUSAL):
        restoring.restore(store, tmp_path / "refused")
