"""Waits between the attempts at a message whose handler raises, so that it does not use a whole core."""

from __future__ import annotations

from typing import NamedTuple

from ... import errors

_DOUBLED = 60  # times at most: by then every wait is the longest


class Retries(NamedTuple):
    """Waits after failed attempts: `first_s` seconds, doubled after each further one, at most `most_s`."""

    first_s: float = 1.0
    most_s: float = 60.0

    def check(self) -> None:
        if not 0 <= self.first_s <= self.most_s:
            raise errors.InvalidRequest("retry_after is seconds from 0 to max_retry_after")

    def after(self, attempt: int) -> float:
        return min(self.first_s * 2.0 ** min(attempt - 1, _DOUBLED), self.most_s)
