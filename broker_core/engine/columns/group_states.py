"""States of message groups: bytes that consumers keep with a group, also without messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from .limits import GROUP_STATE_BYTES


class GroupState(NamedTuple):
    """`time`: of the last change, in microseconds since 1970."""

    octets: bytes
    time: int


class GroupStates:
    """The states of one queue by group, in the order of their last change."""

    def __init__(self, groups: Sequence[str] = (), columns: dict[str, Any] | None = None) -> None:
        self._states: dict[str, GroupState] = {}
        self.bytes = 0  # of states and names, with GROUP_STATE_BYTES for each
        if columns is not None:
            octets, end = columns["octets"].tobytes(), 0
            for group, size, time in zip(groups, columns["sizes"].tolist(), columns["times"].tolist(), strict=True):
                self.put(group, octets[end : end + size], time)
                end += size

    def __len__(self) -> int:
        return len(self._states)

    def get(self, group: str) -> GroupState | None:
        return self._states.get(group)

    def groups(self, since: int = 0) -> list[str]:
        """Return the groups whose state has changed after `since`."""
        return [group for group, state in self._states.items() if state.time > since]

    def put(self, group: str, octets: bytes | None, time: int) -> None:
        """None: the group has no state."""
        self.bytes += self.growth(group, octets)
        self._states.pop(group, None)
        if octets is not None:
            self._states[group] = GroupState(octets, time)

    def growth(self, group: str, octets: bytes | None) -> int:
        """Return by how much `put` would change `bytes`."""
        known = self._states.get(group)
        before = None if known is None else known.octets
        return _cost(group, octets) - _cost(group, before)

    def persisted(self) -> dict[str, Any]:
        """Return the columns that the second argument of the constructor restores."""
        states = self._states.values()
        return {
            "octets": np.frombuffer(b"".join(state.octets for state in states), np.uint8),
            "sizes": np.array([len(state.octets) for state in states], np.int64),
            "times": np.array([state.time for state in states], np.int64),
        }


def _cost(group: str, octets: bytes | None) -> int:
    return 0 if octets is None else len(octets) + len(group) + GROUP_STATE_BYTES
