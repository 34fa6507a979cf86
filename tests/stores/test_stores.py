"""D7: the requests of the copy work on a folder, obstore's memory, S3 and Azure; for S3 also through faults."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.broker_core.errors import InvalidRequest
from penstock.broker_core.stores.buckets import BucketStore
from penstock.broker_core.stores.folders import FolderStore
from penstock.broker_core.stores.objects import NoSuchObject, ObjectStore, StoreError
from penstock.broker_core.stores.urls import open_store

from ..azure import CONTAINER, KEY, AzureServer
from ..azure import environment as in_azure
from ..s3 import BUCKET, Proxy, S3Server, environment


@pytest.fixture(params=["folder", "memory", "s3", "azure"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> ObjectStore:
    if request.param == "folder":
        return open_store(f"file://{tmp_path}/deep/store")
    if request.param == "memory":
        return BucketStore("memory://")
    request.getfixturevalue(f"{request.param}_environment")
    place = f"az://{CONTAINER}" if request.param == "azure" else f"s3://{BUCKET}"
    return open_store(f"{place}/{request.node.name.replace('[', '-').rstrip(']')}")


def test_an_object_is_created_once(store: ObjectStore) -> None:
    assert store.create("chunks/1", [b"one", b"two"])
    assert not store.create("chunks/1", [b"other"])
    assert store.get("chunks/1") == b"onetwo"


def test_of_many_who_create_one_name_one_succeeds(store: ObjectStore) -> None:
    done: list[int] = []
    barrier = threading.Barrier(8)

    def create(number: int) -> None:
        barrier.wait()
        if store.create("chunks/same", [b"%d" % number * 1000]):
            done.append(number)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (winner,) = done
    assert store.get("chunks/same") == b"%d" % winner * 1000


def test_put_get_range_names_delete(store: ObjectStore) -> None:
    data = Random(1).randbytes(20 << 20)
    store.put("objects/large", (data[start : start + (1 << 20)] for start in range(0, len(data), 1 << 20)))
    store.put("objects/small", iter([b"12345"]))
    assert store.get_range("objects/large", 5_000_000, 1000) == data[5_000_000:5_001_000]
    assert store.get("objects/large") == data
    assert store.get_range("objects/small", 3, 100) == b"45"
    assert store.names("objects/") == ["objects/large", "objects/small"]
    assert store.names("chunks/") == []
    store.delete("objects/small")
    store.delete("objects/small")
    assert store.names("objects/") == ["objects/large"]
    with pytest.raises(NoSuchObject):
        store.get("objects/small")
    with pytest.raises(NoSuchObject):
        store.get_range("objects/small", 0, 1)


@pytest.mark.parametrize("fault", ["500", "503", "cut", "lost", "slow"])
def test_a_fault_is_an_error_or_nothing_happened(s3: S3Server, monkeypatch: pytest.MonkeyPatch, fault: str) -> None:
    proxy = Proxy(s3.port)
    for name, value in environment(proxy.port).items():
        monkeypatch.setenv(name, value)
    store: Any = open_store(f"s3://{BUCKET}/fault-{fault}")
    faults = iter([fault] * (1 if fault in ("lost", "slow") else 10))
    proxy.fault = lambda method, path: next(faults, None) if method == "PUT" else None
    try:
        done = store.create("chunks/1", [b"x" * 100_000])
    except StoreError:
        done = None
    faults = iter(())
    again = store.create("chunks/1", [b"x" * 100_000])
    assert store.get("chunks/1") == b"x" * 100_000  # whole, or not at all
    assert (done, again) in [(True, False), (None, True), (None, False), (False, False)]
    proxy.close()


def test_wrong_credentials_and_a_missing_bucket_are_named(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(s3.port, "expired").items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match=r"(?i)signature|403|denied|forbidden"):
        open_store(f"s3://{BUCKET}/x").create("chunks/1", [b"x"])
    for name, value in environment(s3.port).items():
        monkeypatch.setenv(name, value)
    with pytest.raises(StoreError, match=r"(?i)NoSuchBucket|bucket"):
        open_store("s3://not-there/x").create("chunks/1", [b"x"])


def test_urls_that_are_none(tmp_path: Path) -> None:
    with pytest.raises(InvalidRequest, match="ftp"):
        open_store("ftp://host/x")
    with pytest.raises(InvalidRequest):
        open_store("/")
    with pytest.raises(InvalidRequest, match="no place is named"):
        open_store("")  # as of a variable of the shell that is not set
    (tmp_path / "link").symlink_to(tmp_path / "data")
    for inside in ("data", "data/backup", "link/backup"):
        with pytest.raises(InvalidRequest, match="lies in the data directory"):
            open_store(str(tmp_path / inside), tmp_path / "data")
    assert isinstance(open_store(str(tmp_path / "data-backup"), tmp_path / "data"), FolderStore)
    assert isinstance(open_store(str(tmp_path)), FolderStore)


def test_a_folder_keeps_what_it_holds_to_its_owner(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "store"))
    store.create("chunks/1", [b"x"])
    assert os.stat(tmp_path / "store" / "chunks" / "1").st_mode & 0o077 == 0
    assert os.stat(tmp_path / "store").st_mode & 0o077 == 0


@pytest.fixture
def s3_environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(s3.port).items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def azure_environment(azure: AzureServer, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {**in_azure(azure.port), "AZURE_STORAGE_ACCOUNT_KEY": KEY}.items():
        monkeypatch.setenv(name, value)
