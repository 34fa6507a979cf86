"""Claims: the entities that a connection may use, each until its token expires.

A claim for `orders` covers `orders/$management` and `orders/$DeadLetterQueue`. The user's permissions still apply.
"""

from __future__ import annotations

import math
from collections.abc import Callable
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
        self.next_expiry: float = math.inf  # seconds since 1970: no token expires earlier

    def __bool__(self) -> bool:
        return bool(self._by_path)

    def add(self, claim: EntityClaim) -> bool:
        """Add or renew a claim. Returns False if there are too many."""
        if claim.path not in self._by_path and len(self._by_path) >= MAX_CLAIMS:
            return False
        self._by_path[claim.path] = claim
        self.next_expiry = min(self.next_expiry, claim.token.expiry)
        return True

    def drop(self, has_ended: Callable[[SharedAccessSignature], bool]) -> bool:
        """Remove the claims whose token has ended. Returns whether there were any."""
        before = len(self._by_path)
        self._by_path = {path: claim for path, claim in self._by_path.items() if not has_ended(claim.token)}
        self.next_expiry = min((claim.token.expiry for claim in self._by_path.values()), default=math.inf)
        return len(self._by_path) < before

    def cover(self, path: Path) -> bool:
        return any(path[:length] in self._by_path for length in range(len(path) + 1))
