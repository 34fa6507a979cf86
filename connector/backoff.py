"""Waits for a broker that is away: it may only be starting again. Planning and reading can be repeated."""

from __future__ import annotations

import time

from ..broker_core.errors import PenstockError

RECONNECT_S = 30.0  # a restart takes a second or two, a recovery of tens of millions of messages some more
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0


class Patience:
    """For one request: pause after each failure, a little longer each time, until `seconds` have passed."""

    def __init__(self, seconds: float) -> None:
        self._give_up = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE_S

    def wait(self, error: PenstockError) -> None:
        """Return when it is time to ask again; raise `error` when patience is at its end."""
        if time.monotonic() + self._pause > self._give_up:
            raise error
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)
