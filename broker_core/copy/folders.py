"""A folder as a store: on another disk, or of another machine and mounted here."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..errors import InvalidRequest
from ..journal.disk import Buffer
from .stores import NoSuchObject, StoreError

TEMPORARY = ".part-"  # in the name of a file that is being written; nothing lists it


class DirectoryStore:
    """A folder on another disk, or of another machine, mounted here. An object is synced before it counts."""

    def __init__(self, url: str, root: Path) -> None:
        if not root.is_absolute() or root == Path("/"):
            raise InvalidRequest(f"{url} does not name a folder")
        self.url, self._root = url, root

    def create(self, name: str, data: Sequence[Buffer]) -> bool:
        """Put an object if there is none of that name."""
        with _as_store_error(self.url):
            half = self._write(name, data)
            try:
                os.link(half, self._root / name)  # fails where there is one: the only call that does, also over NFS
            except FileExistsError:
                return False
            finally:
                half.unlink()
            _sync_folder(half.parent)
            return True

    def put(self, name: str, data: Iterable[bytes]) -> None:
        """Put an object, in place of one of that name."""
        with _as_store_error(self.url):
            half = self._write(name, data)
            half.rename(self._root / name)
            _sync_folder(half.parent)

    def _write(self, name: str, data: Iterable[Buffer]) -> Path:
        folder = (self._root / name).parent
        _make_folder(folder)
        half = folder / f"{TEMPORARY}{uuid.uuid4().hex}"
        try:
            with open(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                for piece in data:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            half.unlink(missing_ok=True)
            raise
        return half

    def get(self, name: str) -> bytes:
        """Return a whole object."""
        with _as_store_error(self.url):
            return (self._root / name).read_bytes()

    def get_range(self, name: str, start: int, length: int) -> bytes:
        """Return bytes of an object."""
        with _as_store_error(self.url), open(self._root / name, "rb") as file:
            file.seek(start)
            return file.read(length)

    def names(self, prefix: str) -> list[str]:
        """Return the names that begin with a folder's name."""
        folder = self._root / prefix
        with _as_store_error(self.url):
            if not folder.is_dir():
                return []
            return sorted(f"{prefix}{name}" for name in os.listdir(folder) if not name.startswith(TEMPORARY))

    def delete(self, name: str) -> None:
        """Delete an object."""
        with _as_store_error(self.url):
            (self._root / name).unlink(missing_ok=True)


@contextlib.contextmanager
def _as_store_error(url: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NoSuchObject(f"{url}: {error}") from error
    except OSError as error:
        raise StoreError(f"{url}: {error}") from error


def _make_folder(folder: Path) -> None:
    if folder.is_dir():
        return
    _make_folder(folder.parent)
    folder.mkdir(mode=0o700, exist_ok=True)
    _sync_folder(folder.parent)


def _sync_folder(folder: Path) -> None:
    descriptor = os.open(folder, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
