"""Waits for a broker that does not answer, since it may be restarting. Only idempotent calls wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ..broker_core.errors import PeerError, StorageError, WrongPort

RECONNECT_S = 30.0  # a restart takes a second or two, a recovery of tens of millions of messages a little longer
PUBLISH_S = 120.0  # a publish is repeated for this time: the work of all tasks depends on it
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0

_T = TypeVar("_T")


class Patience:
    """Growing pauses between the attempts of one request, `seconds` in total."""

    def __init__(self, seconds: float) -> None:
        self._give_up = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE_S

    def wait(self, error: BaseException) -> None:
        """Return when it is time to ask again; raise `error` when the time is over."""
        if time.monotonic() + self._pause > self._give_up:
            raise error
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)


def is_loss(error: BaseException) -> bool:
    """True if an error means that a broker is away, and not that a request is wrong."""
    return isinstance(error, PeerError) and not isinstance(error, WrongPort)


def answered(ask: Callable[[], _T], seconds: float) -> _T:
    """Send an idempotent request. Repeat it while no answer comes, `seconds` in total; return the answer."""
    patience = Patience(seconds)
    while True:
        try:
            return ask()
        except (PeerError, StorageError) as error:
            if isinstance(error, WrongPort):
                raise
            patience.wait(error)
