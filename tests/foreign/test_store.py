"""S11: a spool in an object store, and on other machines' paths."""

from __future__ import annotations

import pytest

from penstock.broker_core import errors
from penstock.connector.foreign import aside
from penstock.connector.foreign.store import Store
from penstock.connector.options import Options

from ..s3 import BUCKET, S3Server, environment
from .helpers import INITIAL, Queue, bodies, drained, next_batch


def test_a_spool_in_an_object_store(queue: Queue, s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(s3.port).items():
        monkeypatch.setenv(name, value)
    queue.send(0, 60)
    spool = f"s3a://{BUCKET}/spool/{queue.name}"
    first = queue.reader(spool=spool, maxMessagesPerTrigger="20")
    end = next_batch(first, INITIAL)
    found = bodies(first, INITIAL, end)
    first.stop()
    second = queue.reader(spool=spool, maxMessagesPerTrigger="20")
    assert second.latestOffset(INITIAL, None) == end
    more, last = drained(second, end)
    second.commit(last)
    assert found + more == list(range(60))
    names = Store(spool).names()
    assert "owner.json" in names
    assert not [name for name in names if name.startswith("batch")]


def test_what_is_set_aside_in_an_object_store_is_counted(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(s3.port).items():
        monkeypatch.setenv(name, value)
    store = Store(f"s3a://{BUCKET}/spool/aside-only")
    for name in (aside.file_of(1, 0, 3), aside.file_of(12, 0, 5), "aside/x"):
        store.put(name, lambda file: file.write(b"x"))
    assert (aside.count(store, 1), aside.count(store, 2), aside.enter(store, {12})) == (3, 0, 3)


def test_a_folder_that_cannot_be_is_refused() -> None:
    with pytest.raises(errors.InvalidOption, match="no folder that pyarrow can use"):
        Store("ftp://nowhere/x").names()
    with pytest.raises(errors.InvalidOption, match="must not hold a user"):
        Options({"url": "amqp://h", "queue": "q", "spool": "s3://key:secret@bucket/x"})
