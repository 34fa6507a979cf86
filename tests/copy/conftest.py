"""No test of the copy waits longer than it has to between two attempts."""

from __future__ import annotations

import pytest

from penstock.broker_core.stores import retry


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry, "RETRY_FIRST_S", 0.005)
    monkeypatch.setattr(retry, "RETRY_MOST_S", 0.05)
