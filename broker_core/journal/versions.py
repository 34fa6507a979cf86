"""Versions of persisted formats. A file of another version is refused, unless its module reads that version.

Directories of development versions, before version 1, have higher or missing numbers. They are refused like those of a later
Penstock.
"""

from __future__ import annotations

from ..errors import StorageError


def check_version(path: str, version: int, newest: int, remark: str = "") -> None:
    """Raises StorageError; `remark` ends its text."""
    if not 1 <= version <= newest:
        readable = "1" if newest == 1 else f"1 to {newest}"
        raise StorageError(
            f"{path}: written in format version {version}, this program reads {readable}; use the program that wrote it, or "
            f"begin with an empty directory{remark}"
        )
