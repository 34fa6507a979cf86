"""A whole data directory into the store: the beginning of a copy, what a start finds missing, a backup.

What is there already is not put again, so that a second backup puts what is new, and an upload that was broken off goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from zlib import crc32

from ..errors import StorageError
from ..journal.disk import COPY_BYTES, Buffer, Disk, ReadFile, is_shortage
from ..journal.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from ..stores.objects import StoreError
from .chain import Chain
from .chunks import Part
from .contents import Contents, Piece
from .pictures import SMALL_FILES, Picture, PictureGone

OBJECT_BYTES = 64 << 20  # of one object: what is put again after a failure
SMALL_MAX = 16 << 20


def upload(
    chain: Chain,
    disk: Disk,
    picture: Picture,
    contents: Contents,
    attempt: Callable[[Callable[[], None]], None],
    progress: Callable[[int], None] = lambda nbytes: None,
) -> None:
    """Put what `contents` lack of the picture's files, and add it there; then remove what the picture does not have.

    `attempt` calls what it is given until that succeeds, or raises. `progress` is called with bytes that are there now. Raises
    PictureGone when a file was removed meanwhile: what was put stays in `contents`.
    """
    order = sorted(picture.files, key=lambda name: (not name.endswith(SNAPSHOT_SUFFIX), name))  # those live shortest
    for name in order:
        size = picture.files[name]
        if name in SMALL_FILES:
            continue
        start = contents.size(name)
        progress(min(start, size))
        file = open_file(disk, name) if start < size else None
        while file is not None and start < size:
            stop = min(size, start + OBJECT_BYTES)
            piece = put_range(chain, file, disk.path(name), start, stop, attempt)
            contents.add(name, piece)
            progress(stop - start)
            start = stop
    contents.remove([name for name in contents.files if name not in picture.files])
    contents.ends = {name: size for name, size in picture.files.items() if name not in SMALL_FILES and contents.size(name) > size}


def put_range(
    chain: Chain, file: ReadFile, path: str, start: int, stop: int, attempt: Callable[[Callable[[], None]], None]
) -> Piece:
    """Put the bytes [start, stop) of a file as an object; return it as a piece of the file."""
    name, crc = chain.new_object(), 0

    def put() -> None:
        nonlocal crc
        crc = 0

        def content() -> Iterator[bytes]:
            nonlocal crc
            for data in _pieces(file, path, start, stop):
                crc = crc32(data, crc)
                yield data

        chain.store.put(name, content())

    attempt(put)
    return Piece(name, 0, start, stop - start, crc)


def _pieces(file: ReadFile, path: str, start: int, stop: int) -> Iterator[bytes]:
    while start < stop:
        data = file.read(start, min(COPY_BYTES, stop - start))
        if not data:
            raise StorageError(f"{path}, offset {start}: the file ends here, and was longer before")
        yield data
        start += len(data)


def open_file(disk: Disk, name: str) -> ReadFile:
    """Open a file of a picture. Raises PictureGone when it was removed."""
    try:
        return disk.open(name)
    except FileNotFoundError:
        raise PictureGone(name) from None
    except OSError as error:
        if is_shortage(error):
            raise StoreError(f"{disk.path(name)} cannot be opened now: {error}") from error
        raise StorageError(f"{disk.path(name)} cannot be read: {error}") from error


def small_parts(disk: Disk, contents: Contents) -> tuple[list[Part], list[Buffer]]:
    """Return those small files that are not in `contents` as they are now, as parts of a chunk."""
    parts, body = list[Part](), list[Buffer]()
    names = disk.names()
    for name in SMALL_FILES:
        if name not in names:
            continue
        try:
            data = disk.open(name).read(0, SMALL_MAX)
        except FileNotFoundError:
            continue
        there = contents.files.get(name, [])
        if not data or (len(there) == 1 and there[0].length == len(data) and there[0].crc == crc32(data)):
            continue
        parts.append(Part(name, 0, len(data), crc32(data)))
        body.append(data)
    return parts, body
