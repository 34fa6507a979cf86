"""D4, D7: the archive across a restore: unfinished recordings count once, and repeated settlements are recorded again."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest

from penstock.broker_core.cli import main
from penstock.broker_core.engine import commands as c

from ..archive.rig import Died, Rig, sequences, table
from ..flight.helpers import numbered


@pytest.mark.parametrize("step", ["write", "commit", "answer"])
def test_passes_after_a_restore_are_not_those_of_the_original(step: str, tmp_path: Path) -> None:
    archive = str(tmp_path / "tables")
    one = Rig(tmp_path / "one", archive=archive)
    one.service.submit(c.DeclareQueue("q"))
    one.send("q", numbered(100))
    one.settle("q", 10)
    one.record()

    def die(name: str) -> None:
        if name == step:
            raise Died

    one.settle("q", 10)
    one.step = die
    with contextlib.suppress(Died):
        one.record()
    one.close()
    assert main(["backup", "--data", str(one.data), "--to", str(tmp_path / "backup")]) == 0

    one.step = lambda name: None
    one.open()
    one.record()
    one.settle("q", 10)
    one.record()
    assert sequences(table(Path(archive))) == list(range(30))
    one.close()

    lineages = {None}
    for number, name in enumerate(["two", "three"], 1):
        assert main(["restore", "--from", str(tmp_path / "backup"), "--data", str(tmp_path / name)]) == 0
        other = Rig(tmp_path / name, archive=archive)
        other.record()
        assert other.unrecorded() == 0
        other.reopen()
        other.settle("q", 10)  # 20 to 29 again: in the backup they are not settled
        other.record()
        other.close()
        found = sequences(table(Path(archive)))
        assert found == sorted([*range(20), *[each for each in range(20, 30) for _ in range(number + 1)]])
        lineages.add(other.service.journal.lineage.name)
    assert len(lineages) == 3
