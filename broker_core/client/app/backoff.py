"""Plan of a reconnect: when to try which server. Pure; the caller gives the randomness."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from ...errors import InvalidRequest


@dataclass(frozen=True)
class Backoff:
    """Waits between rounds of all servers after a loss, for `connect(…, reconnect=…)`.

    Each wait is shortened by a random share, so that clients of one lost broker do not come back all at once.

    Args:
        first_s: Seconds of the first wait.
        factor: How many times as long each next wait is.
        most_s: Seconds of the longest wait.
        jitter: Largest share by which a wait is shortened, 0 to 1.
        attempts: Number of attempts, over all servers together; None goes on for ever.

    Raises:
        InvalidRequest: Values that make no sense together.
    """

    first_s: float = 0.1
    factor: float = 2.0
    most_s: float = 10.0
    jitter: float = 0.5
    attempts: int | None = None

    def __post_init__(self) -> None:
        if not (0 <= self.first_s <= self.most_s and self.factor >= 1 and 0 <= self.jitter <= 1):
            raise InvalidRequest(f"{self} makes no sense: 0 <= first_s <= most_s, factor >= 1 and 0 <= jitter <= 1 must hold")
        if self.attempts is not None and self.attempts < 1:
            raise InvalidRequest("attempts must be at least 1, or None for no limit")

    def plan(self, urls: Sequence[str], lost: str, random: Callable[[], float]) -> Iterator[tuple[float, str]]:
        """Yield pairs of (seconds to wait first, url to try). The server after `lost` comes first, at once; each round tries all.

        `random` returns numbers from 0 to 1.
        """
        start = urls.index(lost) + 1 if lost in urls else 0
        growing = self.first_s
        for attempt in count() if self.attempts is None else range(self.attempts):
            pause = 0.0
            # Wait before each round. Before the first one, wait only if the server just lost is the only one.
            if attempt % len(urls) == 0 and (attempt or len(urls) == 1):
                pause, growing = growing, min(self.most_s, growing * self.factor)
            yield pause * (1 - self.jitter * random()), urls[(start + attempt) % len(urls)]
