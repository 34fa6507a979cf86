"""Housekeeping comes when a test calls for it: every history here is the same in each run."""

from __future__ import annotations

import pytest

from penstock.broker_core.service import broker


@pytest.fixture(autouse=True)
def _housekeeping_when_called(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(broker, "HOUSEKEEPING_S", 3600.0)
