"""An S3 server for all tests of the copy; none of them waits longer than it has to between two attempts."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.broker_core.copy import uploads

from ..clients.conftest import command_or_skip
from .s3 import S3Server


@pytest.fixture(autouse=True)
def _quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(uploads, "RETRY_FIRST_S", 0.005)
    monkeypatch.setattr(uploads, "RETRY_MOST_S", 0.05)


@pytest.fixture(scope="session")
def s3(tmp_path_factory: pytest.TempPathFactory) -> Iterator[S3Server]:
    server = S3Server(command_or_skip("versitygw"), tmp_path_factory.mktemp("s3") / "files")
    yield server
    server.close()
