"""Claims: the entities that a connection may use, each until its token expires.

A claim for an entity covers its parts: `orders` covers `orders/$management` and `orders/$DeadLetterQueue`. The
user's permissions still apply.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from ...security.shared_access import SharedAccessSignature

MAX_CLAIMS = 1000  # of a connection; an SDK has one for each entity that it uses

Path = tuple[str, ...]


class EntityClaim(NamedTuple):
    """A token for an entity."""

    path: Path
    token: SharedAccessSignature


class EntityClaims:
    """Claims of one connection, by path."""

    def __init__(self) -> None:
        self._by_path: dict[Path, EntityClaim] = {}

    def __bool__(self) -> bool:
        return bool(self._by_path)

    def __iter__(self) -> Iterator[EntityClaim]:
        return iter(list(self._by_path.values()))

    def add(self, claim: EntityClaim) -> bool:
        """Add or renew a claim. Returns False if there are too many."""
        if claim.path not in self._by_path and len(self._by_path) >= MAX_CLAIMS:
            return False
        self._by_path[claim.path] = claim
        return True

    def drop(self, claim: EntityClaim) -> None:
        self._by_path.pop(claim.path, None)

    def cover(self, path: Path) -> bool:
        return any(path[:length] in self._by_path for length in range(len(path) + 1))
