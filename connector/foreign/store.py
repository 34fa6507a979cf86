"""Files of one folder, local or in an object store, by pyarrow's file systems. A file is whole and durable, or not there.

S3 and Google show an object once it is whole. A local disk and Azure show a file from its first octet, so there it is written
under another name, and moved: in Azure that takes an account with a hierarchical namespace, and pyarrow refuses any other. HDFS
and whatever else pyarrow knows are refused.

The files hold whole messages. A local folder that we make is its user's alone. In one that is there, files and folders are also
for its group, as the folder itself is: the accounts of driver and executors may differ. They are never for everybody.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pyarrow as pa

from ...broker_core.errors import DiskFull, InvalidOption, NotAllowed, StorageError
from ...broker_core.local_files import sync
from ...broker_core.stores.credentials import arrow_file_system
from ...broker_core.stores.folders import is_local, local_path

PART = ".part"  # ends the name of a file that is being written, on a local disk and in Azure
_WHOLE, _MOVED = ("s3", "s3a", "gs", "gcs"), ("abfs", "abfss")  # schemes: of stores that show whole objects alone, and of Azure
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class Exists(Exception):
    """A file that was to be new is there already."""


class Store:
    """The folder at `url`: a path, `file:///…`, `s3a://BUCKET/…` or another of the schemes above. Raises InvalidOption.

    Nothing is asked before the first call. Errors name the folder and say what to do.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        scheme = re.match(r"([A-Za-z][\w+.-]+):/", url)
        self._scheme = None if scheme is None else scheme[1]
        self._made: tuple[Any, str] | None = None

    def __reduce__(self) -> tuple[type[Store], tuple[str]]:
        return Store, (self.url,)

    @property
    def _place(self) -> tuple[Any, str]:
        if self._made is None:
            from pyarrow import fs

            if self._scheme not in (None, "file", *_WHOLE, *_MOVED) or (self._scheme and "://" not in self.url):
                raise InvalidOption(
                    f"option spool: {self.url!r} is no folder where a file is whole or not there: name a path, file:///…,"
                    f" {', '.join(f'{each}://…' for each in (*_WHOLE, *_MOVED))}"
                )
            try:
                if self.local:
                    found, root = fs.LocalFileSystem(), os.path.abspath(local_path(self.url))
                else:
                    found, root = arrow_file_system(self.url)
                    root = root.lstrip("/")
            except (pa.ArrowException, OSError, ValueError) as error:
                raise InvalidOption(f"option spool: {self.url!r} is no folder that pyarrow can use: {error}") from error
            self._made = found, root.rstrip("/")
        return self._made

    @property
    def local(self) -> bool:
        """True for a folder of this machine's file systems."""
        return is_local(self.url)

    def prepare(self) -> None:
        """Make the folder, where it is not there."""
        root = self._place[1]
        if self.local:
            self._try("made", lambda: _make_all(root))

    def names(self, under: str = "", *, deep: bool = False) -> list[str]:
        """Return the names of all files in the folder, or in a folder of it; with `deep` also of those in its folders."""
        from pyarrow import fs

        found, root = self._place
        selector = fs.FileSelector(f"{root}/{under}".rstrip("/"), allow_not_found=True, recursive=deep)
        infos = self._try("listed", lambda: found.get_file_info(selector))
        return [info.path[len(selector.base_dir) + 1 :] for info in infos if info.type == fs.FileType.File]

    def read(self, name: str) -> bytes | None:
        """Return the content of a small file; None where there is none."""
        file = self.open(name)
        if file is None:
            return None
        with file:
            return bytes(self._try("read", file.read))

    def size(self, name: str) -> int:
        """Return the octets of a file; 0 where there is none."""
        found, root = self._place
        return int(self._try("read", lambda: found.get_file_info(f"{root}/{name}")).size or 0)

    def open(self, name: str) -> Any:
        """Open a file to read in any order, mapped where that is possible; None where there is none."""
        found, root = self._place
        path = f"{root}/{name}"
        try:
            return pa.memory_map(path) if self.local and os.path.getsize(path) else found.open_input_file(path)
        except FileNotFoundError:
            return None
        except (OSError, pa.ArrowException) as error:
            raise self._wrong("read", error) from error

    def put(self, name: str, write: Callable[[Any], object], *, new: bool = False) -> None:
        """Write a file by `write`, which is given an open one. When this returns it is durable, under its name.

        With `new`, raise Exists where there is one of that name: on a local disk in one step, if it has hard links; object stores
        are asked before.
        """
        self._try("written", lambda: (self._put_local if self.local else self._put_whole)(name, write, new))

    def _put_local(self, name: str, write: Callable[[Any], object], new: bool = False) -> None:
        path = f"{self._place[1]}/{name}"
        part = f"{path}.{secrets.token_hex(4)}{PART}"
        try:
            try:
                self._make_file(part)
            except FileNotFoundError:
                if "/" not in name:
                    raise
                self._make_folders(os.path.dirname(name))
                self._make_file(part)
            with pa.OSFile(part, "wb") as file:
                write(file)
            sync(part)
            (_link if new else os.rename)(part, path)
        except BaseException:
            with suppress(OSError):
                os.unlink(part)
            raise
        sync(os.path.dirname(path))

    def _mode(self) -> int:
        return os.stat(self._place[1]).st_mode

    def _make_file(self, path: str) -> None:
        """Make an empty file for who may enter the folder, whatever the umask says: not even for a moment for more."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if self._mode() & stat.S_IXGRP:
                os.fchmod(descriptor, 0o640)
        finally:
            os.close(descriptor)

    def _make_folders(self, name: str) -> None:
        """Make a folder in the folder, and those on the way, with the same rights but for everybody else's."""
        path = self._place[1]
        for part in name.split("/"):
            path = f"{path}/{part}"
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
                os.chmod(path, stat.S_IRWXU | self._mode() & (stat.S_ISGID | stat.S_IRWXG))
                sync(os.path.dirname(path))

    def _put_whole(self, name: str, write: Callable[[Any], object], new: bool = False) -> None:
        from pyarrow import fs

        found, root = self._place
        if new and found.get_file_info(f"{root}/{name}").type != fs.FileType.NotFound:
            raise Exists(name)
        memory = pa.BufferOutputStream()  # whole first: a stream that is given up half-way could leave half an object
        write(memory)
        part = f"{name}.{secrets.token_hex(4)}{PART}" if self._scheme in _MOVED else name
        try:
            with found.open_output_stream(f"{root}/{part}") as file:
                file.write(memory.getvalue())
            if part != name:
                found.move(f"{root}/{part}", f"{root}/{name}")
        except BaseException:
            if part != name:
                with suppress(OSError, pa.ArrowException):
                    found.delete_file(f"{root}/{part}")
            raise

    def delete(self, name: str) -> None:
        """Delete a file; one that is not there is no error."""
        found, root = self._place

        def gone() -> None:
            with suppress(FileNotFoundError):
                found.delete_file(f"{root}/{name}")

        self._try("deleted from", gone)

    def _try(self, verb: str, call: Callable[[], Any]) -> Any:
        try:
            return call()
        except (OSError, pa.ArrowException) as error:
            raise self._wrong(verb, error) from error

    def _wrong(self, verb: str, error: Exception) -> StorageError | DiskFull | NotAllowed:
        number = getattr(error, "errno", None)
        if number in _FULL:
            return DiskFull(
                f"the spool {self.url} is full: make room there, and start the query again; what was not written is still at the"
                " broker"
            )
        if number in (errno.EACCES, errno.EPERM, errno.EROFS):
            return NotAllowed(f"the spool {self.url} cannot be {verb} by this user ({error}): give Spark's user the right to it")
        return StorageError(
            f"the spool {self.url} cannot be {verb}: {error}. Is it there, and can driver and executors reach it?"
        )


def _make_all(path: str) -> None:
    """Make a folder, and those on the way that are not there, each durable under its name."""
    above = os.path.dirname(path)
    if not os.path.exists(above):
        _make_all(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    else:
        with suppress(PermissionError):  # a folder of somebody else's, in which we may make one and not look
            sync(above)


def _link(part: str, path: str) -> None:
    """Name a file that was written, if the name is free: in one step where the file system has hard links. Raises Exists."""
    try:
        os.link(part, path)
    except FileExistsError:
        raise Exists(path) from None
    except OSError as error:
        if error.errno not in _NO_LINKS:
            raise
        if os.path.exists(path):
            raise Exists(path) from None
        os.rename(part, path)
    else:
        os.unlink(part)
