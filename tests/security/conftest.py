"""The tests of security, each as if it were alone in its process."""

from __future__ import annotations

import pytest

from penstock.broker_core.security import log_limit


@pytest.fixture(autouse=True)
def _all_refusals_are_logged(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    if "fill_the_log" not in request.node.name:
        monkeypatch.setattr(log_limit, "LINES", 10**9)
