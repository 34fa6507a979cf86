"""A data directory opened to read, perhaps next to a running broker."""

from __future__ import annotations

import errno
import fcntl
import os
from pathlib import Path
from typing import Any, NoReturn

from ..errors import InvalidRequest, StorageError
from ..journal.disk import OthersDirectory
from ..journal.journal import ID_FILE

LOCK_FILE = "lock"


class ReadOnlyDirectory(OthersDirectory):
    """A `Disk` that changes nothing. `live`: a broker runs on the directory. Otherwise none can start until `close`.

    Raises InvalidRequest if the path is not a data directory, StorageError if it cannot be read.
    """

    def __init__(self, path: Path | str) -> None:
        root = Path(path).absolute()
        try:
            if not root.is_dir():
                raise InvalidRequest(f"{root} is not a directory")
            if not (root / ID_FILE).is_file() and not any(root.glob("*.seg")):
                raise InvalidRequest(f"{root} is not the data directory of a broker: it has no file `id`")
            super().__init__(root)
        except PermissionError as error:
            raise StorageError(f"{root} cannot be read: {error.strerror}. It belongs to the broker's account") from None
        except OSError as error:
            raise StorageError(f"{root} cannot be read: {error.strerror or error}") from error
        self.live = False
        try:
            self._lock = os.open(root / LOCK_FILE, os.O_RDONLY | os.O_CLOEXEC)
            fcntl.flock(self._lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except FileNotFoundError:
            pass  # a directory put together by hand
        except OSError as error:
            if error.errno not in (errno.EWOULDBLOCK, errno.EACCES) or self._lock < 0:
                self.close()
                raise StorageError(f"{root} cannot be read: {error}") from error
            self.live = True

    def _refuse(self, *names: Any, **options: Any) -> NoReturn:
        raise OSError(errno.EROFS, "the directory is only read", self.path(names[0]))

    create = create_note = rename = unlink = _refuse

    def sync_directory(self) -> None: ...
