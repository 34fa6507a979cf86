"""Names that rows store as codes."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from zlib import crc32

import numpy as np
import numpy.typing as npt

from .attributes import Coded
from .series import Ints

# At least so many codes are counted instead of sorted, if the highest is at most so many times their number.
_COUNTED_ROWS, _COUNTED_CODES = 64, 4


class Dictionary:
    """Names of message groups or keys, and their codes, from 1 on; 0: no name. Codes without live rows are reused."""

    __slots__ = ("_codes", "_free", "_hashes", "_live", "_names")

    def __init__(self, names: Sequence[str | None] = ()) -> None:
        self._names: list[str | None] = [None, *names]
        self._codes = {name: code for code, name in enumerate(self._names) if name is not None}
        self._free = [code for code in range(len(self._names) - 1, 0, -1) if self._names[code] is None]
        self._live: npt.NDArray[np.int64] = np.zeros(max(8, len(self._names)), np.int64)
        self._hashes: npt.NDArray[np.uint32] = np.zeros(len(self._live), np.uint32)
        for name, code in self._codes.items():
            self._hashes[code] = _hash(name)

    def __len__(self) -> int:
        return len(self._codes)

    @property
    def size(self) -> int:
        """The highest code so far, plus one."""
        return len(self._names)

    def persisted(self) -> list[str | None]:
        """None: a free code."""
        return self._names[1:]

    def name(self, code: int) -> str | None:
        return self._names[code]

    def names(self) -> Iterator[tuple[str, int]]:
        return iter(self._codes.items())

    def get(self, name: str) -> int:
        return self._codes.get(name, 0)

    def codes_of(self, coded: Coded) -> Ints:
        """A name without a row gets no code, because the end of its last row frees the code."""
        if len(coded.codes) == 1:
            code = int(coded.codes[0])
            return np.array([self._code(coded.names[code - 1]) if code else 0])
        used, codes_by_name = coded.used(), np.zeros(len(coded.names) + 1, np.int64)
        names = coded.names if len(used) == len(coded.names) else [coded.names[code - 1] for code in used.tolist()]
        known = self._codes.get
        codes_by_name[used] = [known(name) or self._code(name) for name in names]
        codes: Ints = codes_by_name[coded.codes]
        return codes

    def _code(self, name: str) -> int:
        code = self._codes.get(name)
        if code is None:
            if self._free:
                code = self._free.pop()
                self._names[code] = name
            else:
                code = len(self._names)
                self._names.append(name)
                if code >= len(self._live):
                    self._live = np.concatenate([self._live, np.zeros_like(self._live)])
                    self._hashes = np.concatenate([self._hashes, np.zeros_like(self._hashes)])
            self._codes[name] = code
            self._hashes[code] = _hash(name)
        return code

    def hashes(self, codes: Ints) -> Ints:
        """Hashes stay the same after a restart. A forgotten name has an arbitrary hash."""
        hashes: Ints = self._hashes[np.minimum(codes, len(self._hashes) - 1)]
        return hashes

    def came(self, codes: Ints) -> None:
        np.add.at(self._live, codes, 1)

    def went(self, codes: Ints) -> Ints:
        """Returns the codes that no live row has any more; the caller may `forget` them."""
        np.subtract.at(self._live, codes, 1)
        mine = distinct(codes)
        gone: Ints = mine[(self._live[mine] <= 0) & (mine > 0)]
        return gone

    def live(self, codes: Ints) -> Ints:
        counts: Ints = self._live[codes]
        return counts

    def forget(self, codes: Ints) -> None:
        for code in codes.tolist():
            name = self._names[code]
            if name is not None:
                del self._codes[name]
                self._names[code] = None
                self._free.append(code)


class Names:
    """Names of takers, and their codes, from 1 on; 0: no name. At most `most` names get a code, and keep it forever, because
    settled rows that have left memory refer to it."""

    __slots__ = ("_codes", "_most", "names")

    def __init__(self, most: int, names: Iterable[str] = ()) -> None:
        self.names = list(names)  # it only grows, so reading it needs no lock
        self._most = most
        self._codes = {name: code for code, name in enumerate(self.names, 1)}

    def knows(self, name: str) -> bool:
        return name in self._codes

    def code(self, name: str | None) -> int:
        if not name:
            return 0
        code = self._codes.get(name)
        if code is None:
            if len(self.names) >= self._most:
                return 0
            self.names.append(name)
            code = self._codes[name] = len(self.names)
        return code


def distinct(codes: Ints) -> Ints:
    """Return the codes that occur, ascending. Counting is several times faster than sorting."""
    if len(codes) < _COUNTED_ROWS or int(codes.max()) > _COUNTED_CODES * len(codes):
        return np.unique(codes)
    return np.flatnonzero(np.bincount(codes))


def _hash(name: str) -> int:
    return crc32(name.encode(errors="surrogatepass"))
