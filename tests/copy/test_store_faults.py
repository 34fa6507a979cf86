"""D7: a real S3 that refuses for a while. The broker continues or waits, reports the store's error, and the copy catches up."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker_core.copy.chain import Chain, CopyFenced, last_chunk
from penstock.broker_core.copy.marker import Marker
from penstock.broker_core.stores import retry
from penstock.broker_core.stores.urls import open_store

from ..journal.lying_disk import LyingDisk
from ..s3 import BUCKET, CODES, Proxy, S3Server, environment
from ..stores.faulty_store import FaultyStore
from ..waiting import until
from .helpers import copied, restored

CONTENTS = [(b"meta %d" % number, bytes([number]) * 2000) for number in range(20)]


@pytest.mark.parametrize("mode", ["async", "sync"])
@pytest.mark.parametrize("fault", ["400", "403"])
def test_a_store_that_refuses_for_a_while(
    fault: str, mode: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its clock is off, or the credentials have expired and are renewed. 500, 503 and cuts: test_brokers, test_stores."""
    monkeypatch.setattr(retry, "RETRY_MOST_S", 0.2)
    proxy = Proxy(s3.port)
    for name, value in environment(proxy.port).items():
        monkeypatch.setenv(name, value)
    store = open_store(f"s3://{BUCKET}/refuses-{fault}-{mode}")
    with copied(LyingDisk(), store, mode) as running:
        running.append(*CONTENTS[:10])
        running.until_copied()
        proxy.fault = lambda method, path: fault
        end = running.append(*CONTENTS[10:], wait_s=None)
        until(lambda: running.copier.status()["error"] is not None, "the copier reports its error")
        status = running.copier.status()
        assert status["state"] == "waiting"
        assert CODES[fault] in status["error"]
        if mode == "async":
            running.journal.wait(end, 10)
        else:
            with pytest.raises(TimeoutError):
                running.journal.wait(end, 0.1)
        proxy.fault = lambda method, path: None
        running.journal.wait(end, 60)
        running.until_copied()
        assert running.failures == []
    assert restored(store, tmp_path / "data")[0] == CONTENTS
    proxy.close()


def test_clocks_decide_nothing() -> None:
    """Each writer has a clock of its own, and it may be years off: the numbers of the chunks decide."""
    objects: dict[str, bytes] = {}
    old = Chain(FaultyStore(objects), "broker-1", "old", "copy", clock=lambda: 2e9)
    old.claim(Marker(("old",)))
    new = Chain(FaultyStore(objects), "broker-1", "new", "copy", clock=lambda: 0.0)
    new.claim(Marker(("old", "new")))
    with pytest.raises(CopyFenced, match="1970-01-01"):
        old.put(old.prepare([], [], position=0))
    chunk = last_chunk(FaultyStore(objects))
    assert chunk is not None
    assert (chunk.writer, chunk.number) == ("new", 2)
