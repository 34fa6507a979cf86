"""Plan of a reconnect: when to try which server."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import count

from ...errors import InvalidRequest


@dataclass(frozen=True)
class Backoff:
    """Waits between rounds of all servers after a loss, for `connect(…, reconnect=…)`.

    Each wait is shortened by a random share, so that the clients of a lost broker do not return together.

    Args:
        first_s: Seconds of the first wait.
        factor: Growth of each wait over the previous one.
        most_s: Seconds of the longest wait.
        jitter: Largest share by which a wait is shortened, 0 to 1.
        attempts: Number of attempts, over all servers together. None: no limit.

    Raises:
        InvalidRequest: Values that contradict each other.
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
        """Yield pairs of (seconds to wait, URL to try). The server after `lost` comes first, immediately. `random` returns a
        number from 0 to 1.
        """
        start = urls.index(lost) + 1 if lost in urls else 0
        longer = self.first_s
        for attempt in count() if self.attempts is None else range(self.attempts):
            pause = 0.0
            # Wait before each round; before the first round only for a single server.
            if attempt % len(urls) == 0 and (attempt or len(urls) == 1):
                pause, longer = longer, min(self.most_s, longer * self.factor)
            yield pause * (1 - self.jitter * random()), urls[(start + attempt) % len(urls)]
