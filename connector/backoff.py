"""Waits for a broker that may be restarting. Only idempotent calls wait."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

from ..broker_core.errors import PeerError, PenstockError, StorageError, WrongPort

RECONNECT_S = 30.0  # a recovery of tens of millions of messages takes a few seconds
PUBLISH_S = 120.0  # the work of all tasks depends on a publish
_FIRST_PAUSE_S, _LONGEST_PAUSE_S = 0.05, 1.0

_T = TypeVar("_T")


class Patience:
    """Growing pauses between attempts, `seconds` in total."""

    def __init__(self, seconds: float) -> None:
        self._give_up = time.monotonic() + seconds
        self._pause = _FIRST_PAUSE_S

    def wait(self, error: BaseException) -> None:
        if time.monotonic() + self._pause > self._give_up:
            raise error
        time.sleep(self._pause)
        self._pause = min(self._pause * 2, _LONGEST_PAUSE_S)


def is_loss(error: BaseException) -> bool:
    """True if the broker is away; False if the request is wrong."""
    return isinstance(error, PeerError) and not isinstance(error, WrongPort)


def is_unanswered(error: BaseException) -> bool:
    return is_loss(error) or isinstance(error, StorageError)


def answered(ask: Callable[[], _T], seconds: float, may_pass: Callable[[PenstockError], bool] = is_unanswered) -> _T:
    """Repeat an idempotent request while its error may pass."""
    patience = Patience(seconds)
    while True:
        try:
            return ask()
        except PenstockError as error:
            if not may_pass(error):
                raise
            patience.wait(error)
