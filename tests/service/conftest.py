"""Housekeeping and alarms come when a test calls for them: every history here is the same in each run."""

from __future__ import annotations

import pytest

from penstock.broker_core.service import broker, watch


@pytest.fixture(autouse=True)
def _housekeeping_when_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "HOUSEKEEPING_S", 3600.0)
    monkeypatch.setattr(watch, "LOOK_S", 3600.0)
