"""Octets of frames that are not complete yet."""

from __future__ import annotations

MAX_PARTS = 64
"""Pieces of an incomplete frame that are kept apart: a frame that comes in two octets at a time would take 28 times its size."""


class Reassembly:
    """Octets that have come and were not handled. Nothing is copied again until a frame may be complete."""

    __slots__ = ("_need", "_parts", "_rest")

    def __init__(self) -> None:
        self._rest = b""
        self._parts: list[bytes | bytearray] = []
        self._need = 0  # octets to wait for

    def add(self, data: bytes) -> bytes | None:
        """Return all octets that are to be handled, with `data` at the end, or None if no frame is complete."""
        self._parts.append(data)
        self._need -= len(data)
        if self._need > 0:
            if len(self._parts) > MAX_PARTS:
                self._parts = [_joined(self._parts)]
            return None
        octets = self._rest + b"".join(self._parts) if self._rest else b"".join(self._parts)
        self._parts.clear()
        return octets

    def keep(self, octets: bytes, *, framed: bool) -> None:
        """Keep octets that could not be handled; the first four are the size of a frame if they are `framed`."""
        self._rest, self._need = octets, 1
        if framed and len(octets) >= 4:
            self._need = max(1, int.from_bytes(octets[:4], "big") - len(octets))

    def clear(self) -> None:
        """Forget all octets."""
        self._parts.clear()
        self._rest = b""


def _joined(parts: list[bytes | bytearray]) -> bytearray:
    """Join pieces. The first one grows if it was joined before: each octet is copied a few times, not once for each join."""
    first, *others = parts
    whole = first if type(first) is bytearray else bytearray(first)
    for part in others:
        whole += part
    return whole
