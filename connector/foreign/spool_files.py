"""Files of one folder, local or in an object store, by pyarrow's file systems. A file is complete and durable, or missing.

S3 and Google show only complete objects. On a local disk and in Azure a file is written under another name and moved. Azure needs
a hierarchical namespace for that; pyarrow refuses other accounts. HDFS is refused.

The files contain whole messages. A new local folder is accessible to its user only. In a folder that is accessible to its group,
files and folders are so as well, because the accounts of driver and executors may differ.
"""

from __future__ import annotations

import errno
import os
import re
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

import pyarrow as pa

from ...broker_core.errors import DiskFull, InvalidOption, NotAllowed, StorageError
from ...broker_core.local_files import sync
from ...broker_core.stores.credentials import arrow_file_system
from ...broker_core.stores.folders import is_local, local_path

PART = ".part"  # ends the name of a file that is being written, on a local disk and in Azure
_WHOLE, _MOVED = ("s3", "s3a", "gs", "gcs"), ("abfs", "abfss")  # schemes; the second are Azure's
_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
_NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.ENOSYS, errno.EMLINK)


class Exists(Exception):
    """The name of a new file is taken."""


class SpoolFiles:
    """The folder at `url`: a path, `file:///…`, or a url with a scheme above. Nothing is asked before the first call."""

    def __init__(self, url: str) -> None:
        self.url, self.local = url, is_local(url)
        scheme = re.match(r"([A-Za-z][\w+.-]+):/", url)
        self._scheme = None if scheme is None else scheme[1]
        self._made: tuple[Any, str] | None = None  # a cached_property has a lock, which cannot travel to workers by value

    def __reduce__(self) -> tuple[type[SpoolFiles], tuple[str]]:
        return SpoolFiles, (self.url,)

    @property
    def _place(self) -> tuple[Any, str]:
        if self._made is None:
            from pyarrow import fs

            if self._scheme not in (None, "file", *_WHOLE, *_MOVED) or (self._scheme and "://" not in self.url):
                raise InvalidOption(
                    f"option spool: {self.url!r} is not a folder in which files are complete or missing: name a path, file:///…,"
                    f" {', '.join(f'{scheme}://…' for scheme in (*_WHOLE, *_MOVED))}"
                )
            try:
                if self.local:
                    file_system, root = fs.LocalFileSystem(), os.path.abspath(local_path(self.url))
                else:
                    file_system, root = arrow_file_system(self.url)
                    root = root.lstrip("/")
            except (pa.ArrowException, OSError, ValueError) as error:
                raise InvalidOption(f"option spool: pyarrow cannot use {self.url!r}: {error}") from error
            self._made = file_system, root.rstrip("/")
        return self._made

    def prepare(self) -> None:
        root = self._place[1]
        if self.local:
            with self._errors("made"):
                _make_all(root)

    def names(self, under: str = "", *, deep: bool = False) -> list[str]:
        """`deep`: also in subfolders."""
        from pyarrow import fs

        file_system, root = self._place
        selector = fs.FileSelector(f"{root}/{under}".rstrip("/"), allow_not_found=True, recursive=deep)
        with self._errors("listed"):
            infos = file_system.get_file_info(selector)
        return [info.path[len(selector.base_dir) + 1 :] for info in infos if info.type == fs.FileType.File]

    def read(self, name: str) -> bytes | None:
        """Return None for a missing file."""
        file = self.open(name)
        if file is None:
            return None
        with file, self._errors("read"):
            return bytes(file.read())

    def size(self, name: str) -> int:
        """Return 0 for a missing file."""
        file_system, root = self._place
        with self._errors("read"):
            return int(file_system.get_file_info(f"{root}/{name}").size or 0)

    def open(self, name: str) -> Any:
        """Open a file to read in any order, mapped if possible. Return None for a missing file."""
        file_system, root = self._place
        path = f"{root}/{name}"
        with self._errors("read"), suppress(FileNotFoundError):
            return pa.memory_map(path) if self.local and os.path.getsize(path) else file_system.open_input_file(path)
        return None

    def put(self, name: str, write: Callable[[Any], object], *, new: bool = False) -> None:
        """Let `write` write into an open file, which is durable when this returns.

        With `new`, raise Exists if the name is taken: in one step on a local disk with hard links. Object stores are asked
        before.
        """
        with self._errors("written"):
            (self._put_local if self.local else self._put_whole)(name, write, new)

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
        """Make an empty file for users who may enter the folder, without regard to the umask."""
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            if self._mode() & stat.S_IXGRP:
                os.fchmod(descriptor, 0o640)
        finally:
            os.close(descriptor)

    def _make_folders(self, name: str) -> None:
        """Make subfolders with the rights of the folder, but without rights for other users."""
        path = self._place[1]
        for part in name.split("/"):
            path = f"{path}/{part}"
            with suppress(FileExistsError):
                os.mkdir(path, 0o700)
                os.chmod(path, stat.S_IRWXU | self._mode() & (stat.S_ISGID | stat.S_IRWXG))
                sync(os.path.dirname(path))

    def _put_whole(self, name: str, write: Callable[[Any], object], new: bool = False) -> None:
        from pyarrow import fs

        file_system, root = self._place
        if new and file_system.get_file_info(f"{root}/{name}").type != fs.FileType.NotFound:
            raise Exists(name)
        memory = pa.BufferOutputStream()  # an aborted stream could leave a part of an object
        write(memory)
        part = f"{name}.{secrets.token_hex(4)}{PART}" if self._scheme in _MOVED else name
        try:
            with file_system.open_output_stream(f"{root}/{part}") as file:
                file.write(memory.getvalue())
            if part != name:
                file_system.move(f"{root}/{part}", f"{root}/{name}")
        except BaseException:
            if part != name:
                with suppress(OSError, pa.ArrowException):
                    file_system.delete_file(f"{root}/{part}")
            raise

    def delete(self, name: str) -> None:
        file_system, root = self._place
        with self._errors("deleted from"), suppress(FileNotFoundError):
            file_system.delete_file(f"{root}/{name}")

    @contextmanager
    def _errors(self, verb: str) -> Iterator[None]:
        try:
            yield
        except (OSError, pa.ArrowException) as error:
            number = getattr(error, "errno", None)
            if number in _FULL:
                raise DiskFull(
                    f"the spool {self.url} is full: make room there, and start the query again; the broker still has the other"
                    " messages"
                ) from error
            if number in (errno.EACCES, errno.EPERM, errno.EROFS):
                raise NotAllowed(
                    f"the spool {self.url} cannot be {verb} by this user ({error}): give Spark's user the right to it"
                ) from error
            raise StorageError(
                f"the spool {self.url} cannot be {verb}: {error}. Is it there, and can driver and executors reach it?"
            ) from error


def _make_all(path: str) -> None:
    above = os.path.dirname(path)
    if not os.path.exists(above):
        _make_all(above)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        if not os.path.isdir(path):
            raise
    else:
        with suppress(PermissionError):  # we may write to another user's folder, but perhaps not read it
            sync(above)


def _link(part: str, path: str) -> None:
    """Give a file its name if it is free, in one step if the file system has hard links. Raises Exists."""
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
