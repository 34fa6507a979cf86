"""A folder as an `ObjectStore`."""

from __future__ import annotations

import contextlib
import os
import uuid
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit

from ..errors import InvalidRequest
from ..local_files import make_folders, sync
from .objects import Buffer, NoSuchObject, StoreError

TEMPORARY = ".part-"  # begins the name of an unfinished file; `names` omits it


def is_local(url: str) -> bool:
    return "://" not in url or url.startswith("file://")


def local_path(url: str) -> str:
    return unquote(urlsplit(url).path) if url.startswith("file://") else url


class FolderStore:
    """Objects as files. An object is synced before it gets its name."""

    def __init__(self, url: str, root: Path) -> None:
        if not root.is_absolute() or root == Path("/"):
            raise InvalidRequest(f"{url} does not name a folder")
        self.url, self._root = url, root

    def create(self, name: str, data: Sequence[Buffer]) -> bool:
        with _as_store_error(self.url):
            part = self._write(name, data)
            try:
                os.link(part, self._root / name)  # the only call that fails if the name exists, also over NFS
            except FileExistsError:
                return False
            finally:
                part.unlink()
            sync(part.parent)
            return True

    def put(self, name: str, data: Iterable[bytes]) -> None:
        with _as_store_error(self.url):
            part = self._write(name, data)
            part.rename(self._root / name)
            sync(part.parent)

    def _write(self, name: str, data: Iterable[Buffer]) -> Path:
        folder = (self._root / name).parent
        make_folders(folder, 0o700)
        part = folder / f"{TEMPORARY}{uuid.uuid4().hex}"
        try:
            with open(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                for piece in data:
                    file.write(piece)
                file.flush()
                os.fsync(file.fileno())
        except BaseException:
            part.unlink(missing_ok=True)
            raise
        return part

    def get(self, name: str) -> bytes:
        with _as_store_error(self.url):
            return (self._root / name).read_bytes()

    def get_range(self, name: str, start: int, length: int) -> bytes:
        with _as_store_error(self.url), open(self._root / name, "rb") as file:
            file.seek(start)
            return file.read(length)

    def names(self, prefix: str) -> list[str]:
        folder = self._root / prefix
        with _as_store_error(self.url):
            if not folder.is_dir():
                return []
            return sorted(f"{prefix}{name}" for name in os.listdir(folder) if not name.startswith(TEMPORARY))

    def delete(self, name: str) -> None:
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
