"""Shortages of file descriptors and of disk space: the writer waits until they end."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import TypeVar

from .disk import is_shortage
from .reserve import is_full
from .segments import out_of_files

PAUSE_S = 0.1  # between two attempts
LAST_ATTEMPTS = 50  # before giving up while the broker stops

_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class Shortages:
    """Waits of one writer. `monotonic`: seconds. `failed` returns True if no attempt makes sense any more."""

    def __init__(self, monotonic: Callable[[], float], failed: Callable[[], bool]) -> None:
        self._monotonic, self._failed = monotonic, failed
        self._giving_up = False
        self.of_space = False

    def give_up(self) -> None:
        """The broker stops: allow at most `LAST_ATTEMPTS` more."""
        self._giving_up = True

    def outlast(self, attempt: Callable[[], _T]) -> _T:
        """Repeat `attempt`, which changes nothing if it raises, during a shortage. Raises its OSError.

        Meanwhile nothing is written into the log: waiting calls continue to wait, and senders are refused.
        """
        began, left = None, LAST_ATTEMPTS
        try:
            while True:
                try:
                    result = attempt()
                except OSError as error:
                    left -= self._giving_up
                    if not (is_shortage(error) or is_full(error)) or self._failed() or not left:
                        raise
                    if began is None:
                        began = self._monotonic()
                        _log.error("%s", _text(error))
                    self.of_space = is_full(error)
                else:
                    if began is not None:
                        _log.info("the journal continues after %.1f s", self._monotonic() - began)
                    return result
                time.sleep(PAUSE_S)
        finally:
            self.of_space = False


def _text(error: OSError) -> str:
    if is_full(error):
        return f"the journal waits, the disk is full and the reserve is used up ({error.strerror}): free some space"
    return str(out_of_files("the journal waits, a segment cannot be begun", error))
