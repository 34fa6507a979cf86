"""Housekeeping comes when a test calls for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.service import broker

from .rig import Rig


@pytest.fixture(autouse=True)
def _housekeeping_when_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "HOUSEKEEPING_S", 3600.0)


@pytest.fixture
def make_rig(tmp_path: Path) -> Iterator[Callable[..., Rig]]:
    made: list[Rig] = []

    def make(name: str = "data", **options: Any) -> Rig:
        made.append(Rig(tmp_path / name, **options))
        return made[-1]

    yield make
    for rig in made:
        rig.close()


@pytest.fixture
def rig(make_rig: Callable[..., Rig]) -> Rig:
    """A broker with the queue `q`."""
    from penstock.broker_core.engine import commands as c

    new_rig = make_rig()
    new_rig.service.submit(c.DeclareQueue("q"))
    return new_rig
