"""No test of the copy waits longer than it has to between two attempts."""

from __future__ import annotations

import pytest

from penstock.broker_core.copy import patient


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(patient, "RETRY_FIRST_S", 0.005)
    monkeypatch.setattr(patient, "RETRY_MOST_S", 0.05)
