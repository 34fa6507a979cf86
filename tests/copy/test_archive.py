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
    rig = Rig(tmp_path / "one", archive=archive)
    rig.service.submit(c.DeclareQueue("q"))
    rig.send("q", numbered(100))
    rig.settle("q", 10)
    rig.record()

    def die(name: str) -> None:
        if name == step:
            raise Died

    rig.settle("q", 10)
    rig.step = die
    with contextlib.suppress(Died):
        rig.record()
    rig.close()
    assert main(["backup", "--data", str(rig.data), "--to", str(tmp_path / "backup")]) == 0

    rig.step = lambda name: None
    rig.open()
    rig.record()
    rig.settle("q", 10)
    rig.record()
    assert sequences(table(Path(archive))) == list(range(30))
    rig.close()

    lineages = {None}
    for number, name in enumerate(["two", "three"], 1):
        assert main(["restore", "--from", str(tmp_path / "backup"), "--data", str(tmp_path / name)]) == 0
        second = Rig(tmp_path / name, archive=archive)
        second.record()
        assert second.unrecorded() == 0
        second.reopen()
        second.settle("q", 10)  # 20 to 29 again: in the backup they are not settled
        second.record()
        second.close()
        numbers_read = sequences(table(Path(archive)))
        assert numbers_read == sorted([*range(20), *[number_sent for number_sent in range(20, 30) for _ in range(number + 1)]])
        lineages.add(second.service.journal.lineage.name)
    assert len(lineages) == 3
