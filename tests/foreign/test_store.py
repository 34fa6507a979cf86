"""S11: a spool in an object store, and on other machines' paths."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyarrow import fs

from penstock.broker_core import errors
from penstock.connector.foreign import aside_files
from penstock.connector.foreign.spool_files import PART, Exists, SpoolFiles
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
    numbers = bodies(first, INITIAL, end)
    first.stop()
    second = queue.reader(spool=spool, maxMessagesPerTrigger="20")
    assert second.latestOffset(INITIAL, None) == end
    more, last = drained(second, end)
    second.commit(last)
    assert numbers + more == list(range(60))
    names = SpoolFiles(spool).names()
    assert "owner.json" in names
    assert not [name for name in names if name.startswith("batch")]


def test_what_is_set_aside_in_an_object_store_is_counted(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in environment(s3.port).items():
        monkeypatch.setenv(name, value)
    store = SpoolFiles(f"s3a://{BUCKET}/spool/aside-only")
    for name in (aside_files.file_of(1, 0, 3), aside_files.file_of(12, 0, 5), "aside/x"):
        store.put(name, lambda file: file.write(b"x"))
    assert (aside_files.count(store, [1]), aside_files.count(store, [2]), aside_files.clear_and_count(store, {12})) == (3, 0, 3)


class Folderless:
    """A file system that shows no folders, like pyarrow's for Google's store if no object was made for a folder."""

    def __init__(self) -> None:
        self._real = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def get_file_info(self, selector: Any) -> Any:
        infos = self._real.get_file_info(selector)
        return infos if isinstance(selector, str) else [info for info in infos if info.type == fs.FileType.File]


def test_what_is_set_aside_is_counted_where_a_store_shows_no_folders(tmp_path: Path) -> None:
    store = SpoolFiles(str(tmp_path))
    for name in (aside_files.file_of(1, 0, 3), aside_files.file_of(1, 9, 1), aside_files.file_of(12, 0, 5)):
        store.put(name, lambda file: file.write(b"x"))
    store._made = Folderless(), str(tmp_path)
    assert (aside_files.count(store, [1, 2]), aside_files.count(store, [2])) == (4, 0)
    assert aside_files.clear_and_count(store, {12}) == 4


def modes(folder: Path) -> dict[str, int]:
    """The rights of a folder and of all that is in it."""
    return {str(path.relative_to(folder)): stat.S_IMODE(path.stat().st_mode) for path in (folder, *folder.rglob("*"))}


@pytest.fixture(params=[0o000, 0o022, 0o077], ids=oct)
def umask(request: pytest.FixtureRequest) -> Iterator[int]:
    before = os.umask(request.param)
    yield request.param
    os.umask(before)


def fill(folder: Path) -> None:
    store = SpoolFiles(str(folder))
    store.prepare()
    for name in ("batch-1.arrow", "aside/batch-1/x"):
        store.put(name, lambda file: file.write(b"a message"))
    store.put("owner.json", lambda file: file.write(b"{}"), new=True)


def test_a_spool_that_we_make_is_its_user_s_alone(umask: int, tmp_path: Path) -> None:
    folder = tmp_path / "on" / "the" / "way"
    fill(folder)
    made = {name: 0o700 if (folder / name).is_dir() else 0o600 for name in modes(folder)}
    assert len(made) == 6
    assert modes(folder) == made


@pytest.mark.parametrize(
    ("mode", "folders", "files"),
    [(0o700, 0o700, 0o600), (0o755, 0o750, 0o640), (0o777, 0o770, 0o640), (0o2770, 0o2770, 0o640), (0o707, 0o700, 0o600)],
    ids=lambda mode: f"{mode:o}",
)
def test_in_a_folder_that_is_there_files_are_for_its_group_as_it_is(
    umask: int, tmp_path: Path, mode: int, folders: int, files: int
) -> None:
    folder = tmp_path / "spool"
    folder.mkdir()
    folder.chmod(mode)
    fill(folder)
    made = {name: folders if (folder / name).is_dir() else files for name in modes(folder)} | {".": mode}
    assert modes(folder) == made


def test_the_names_of_folders_that_are_made_are_synced_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A folder's name stands in the one around it: after a power failure a synced file could be in a folder that is not there."""
    synced: list[str] = []
    fsync = os.fsync

    def noted(descriptor: int) -> None:
        synced.append(os.readlink(f"/proc/self/fd/{descriptor}"))
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", noted)
    store = SpoolFiles(str(tmp_path / "on" / "the" / "way"))
    store.prepare()
    assert synced == [str(tmp_path), str(tmp_path / "on"), str(tmp_path / "on" / "the")]
    store.prepare()
    assert len(synced) == 3, "an existing folder is synced again"
    store.put("aside/batch-1/x", lambda file: file.write(b"a message"))
    made = [Path(path).relative_to(tmp_path / "on" / "the" / "way") for path in synced[3:]]
    assert [str(path) for path in made if not path.name.endswith(PART)] == [".", "aside", "aside/batch-1"]


class Ending:
    """A file system that ends when a file is opened to be written: the file is there then, and empty."""

    def __init__(self) -> None:
        self._real = fs.LocalFileSystem()

    def __getattr__(self, name: str) -> Any:
        return getattr(self._real, name)

    def open_output_stream(self, path: str) -> None:
        self._real.open_output_stream(path).close()
        raise OSError("the driver was killed here")


def test_in_azure_no_file_is_seen_before_it_is_whole(tmp_path: Path) -> None:
    """Azure shows an empty file when pyarrow begins to write it, as a local disk does, which stands for it here."""
    store = SpoolFiles("abfss://spool@account.dfs.core.windows.net/q")
    store._made = fs.LocalFileSystem(), str(tmp_path)
    store.put("owner.json", lambda file: file.write(b"1"))
    store.put("owner.json", lambda file: file.write(b"2"))
    assert (store.names(), store.read("owner.json")) == (["owner.json"], b"2")
    with pytest.raises(Exists):
        store.put("owner.json", lambda file: file.write(b"3"), new=True)
    store._made = Ending(), str(tmp_path)
    for name, new in (("owner.json", False), ("batch-1.arrow", True)):
        with pytest.raises(errors.StorageError, match="killed here"):
            store.put(name, lambda file: file.write(b"3"), new=new)
    assert [name for name in store.names() if not name.endswith(PART)] == ["owner.json"]
    assert store.read("owner.json") == b"2"


@pytest.mark.parametrize(
    "url", ["ftp://h/x", "hdfs://h/x", "viewfs://h/x", "mock:///x", "hdfs:/x", "file:/x", "dbfs:/x", "s3:/b/x"]
)
def test_a_folder_where_a_file_may_be_seen_in_part_is_refused(url: str) -> None:
    with pytest.raises(
        errors.InvalidOption, match=r"not a folder in which files are complete.* a path, file:///…, s3://…, .*abfss://…"
    ):
        SpoolFiles(url).names()


def test_a_folder_that_cannot_be_is_refused() -> None:
    with pytest.raises(errors.InvalidOption, match="pyarrow cannot use"):
        SpoolFiles("abfss://spool/x").names()


def options(spool: str, brokers: int = 1) -> Options:
    return Options({"url": ",".join(f"amqp://h{number}" for number in range(brokers)), "queue": "q", "spool": spool})


@pytest.mark.parametrize(
    "url",
    [
        "s3://key:secret@bucket/x",
        "s3a://key:sec/ret@bucket/x",
        "s3a://key:sec,ret@bucket/x",
        "s3://secret@bucket/x",
        "abfss://c:secret@acct.dfs.core.windows.net/x",
        "abfss://:secret@acct.dfs.core.windows.net/x",
        "abfss://acct.dfs.core.windows.net/c?client_secret=secret",
        "s3://bucket/x?secret",
    ],
)
@pytest.mark.parametrize("brokers", [1, 2])
def test_a_url_with_a_secret_is_refused_without_telling_it(url: str, brokers: int) -> None:
    for spool in (url,) if brokers == 1 else (f"/data/x,{url}", f"{url}, s3://b/x"):
        with pytest.raises(errors.InvalidOption, match="option spool: it must not hold a key, a password or a query") as refusal:
            options(spool, brokers)
        assert "ret" not in str(refusal.value)


def test_azures_containers_and_signs_in_a_path_are_taken() -> None:
    azure = "abfss://container@account.dfs.core.windows.net/spool"
    for spool in (azure, "/data/a:b@c?d", "gs://anonymous@bucket/x", "s3://bucket/a@b,c"):
        assert options(spool).spools == [spool]
    assert options(f"{azure}, s3://bucket/x", 2).spools == [azure, "s3://bucket/x"]
    assert SpoolFiles(azure)._place[1] == "container/spool"
