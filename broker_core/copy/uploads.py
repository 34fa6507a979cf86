"""Upload of a data directory: the beginning of a copy, the difference at a start, or a backup.

Stored pieces are not put again, so an interrupted upload continues.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from zlib_ng.zlib_ng import crc32

from ..errors import StorageError
from ..journal.disk import COPY_BYTES, Buffer, Disk, ReadFile, is_shortage
from ..journal.snapshots import SUFFIX as SNAPSHOT_SUFFIX
from ..stores.objects import StoreError
from .chain import Chain
from .chunks import ChunkPart
from .contents import Contents, Piece
from .pictures import SMALL_FILES, Picture, PictureGone

OBJECT_BYTES = 64 << 20  # the bytes that a failure repeats
SMALL_MAX = 16 << 20


def upload(
    chain: Chain,
    disk: Disk,
    picture: Picture,
    contents: Contents,
    attempt: Callable[[Callable[[], None]], None],
    progress: Callable[[int], None] = lambda nbytes: None,
) -> None:
    """Put the bytes that `contents` lack, and add them there. Then remove other files than the picture's.

    `attempt` calls its argument until that succeeds, or raises. `progress` receives numbers of stored bytes. Raises PictureGone
    if a file was removed meanwhile: the stored pieces stay in `contents`.
    """
    order = sorted(picture.files, key=lambda name: (not name.endswith(SNAPSHOT_SUFFIX), name))  # snapshots are removed soonest
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
    """Raises PictureGone if the file was removed."""
    try:
        return disk.open(name)
    except FileNotFoundError:
        raise PictureGone(name) from None
    except OSError as error:
        if is_shortage(error):
            raise StoreError(f"{disk.path(name)} cannot be opened now: {error}") from error
        raise StorageError(f"{disk.path(name)} cannot be read: {error}") from error


def small_parts(disk: Disk, contents: Contents) -> tuple[list[ChunkPart], list[Buffer]]:
    """Return the small files that differ from `contents`."""
    parts, body = list[ChunkPart](), list[Buffer]()
    names = disk.names()
    for name in SMALL_FILES:
        if name not in names:
            continue
        try:
            data = disk.open(name).read(0, SMALL_MAX)
        except FileNotFoundError:
            continue
        stored = contents.files.get(name, [])
        if not data or (len(stored) == 1 and stored[0].length == len(data) and stored[0].crc == crc32(data)):
            continue
        parts.append(ChunkPart(name, 0, len(data), crc32(data)))
        body.append(data)
    return parts, body
