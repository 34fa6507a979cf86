"""The order in which the client tries servers, at first and after a loss."""

from __future__ import annotations

import random as randomness
import threading
import time
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ... import errors
from ..amqp.connection import Connection
from .backoff import Backoff
from .server import to_penstock_error

#: Repeating a wrong password would only lock the account.
_FINAL = (errors.Unauthenticated, errors.NotAllowed)


class Environment(NamedTuple):
    """Clocks and randomness, which tests replace. `clock` returns seconds, `wall` seconds since 1970, `random` a number from 0 to
    1. `pause` waits for some seconds, or until the event is set.
    """

    clock: Callable[[], float] = time.monotonic
    wall: Callable[[], float] = time.time
    random: Callable[[], float] = randomness.random
    pause: Callable[[float, threading.Event], object] = lambda seconds, closing: closing.wait(seconds)


class Servers:
    """`dial` opens a connection to one server. Without a `backoff` a loss is final."""

    def __init__(
        self, urls: Sequence[str], dial: Callable[[str], Connection], environment: Environment, backoff: Backoff | None
    ) -> None:
        self._urls = list(urls)
        self._dial = dial
        self._environment = environment
        self._backoff = backoff

    def __str__(self) -> str:
        return ", ".join(self._urls)

    def first(self) -> tuple[Connection, str]:
        for url in self._urls[:-1]:
            try:
                return self._dial(url), url
            except errors.PeerError:
                pass
        return self._dial(self._urls[-1]), self._urls[-1]

    def reconnect(
        self, lost: str, error: errors.PenstockError, closing: threading.Event, use: Callable[[Connection, str], None]
    ) -> errors.PenstockError | None:
        """Connect again after `lost` was lost, until `use` accepts a connection without raising. Returns the final error, or None
        after success or when `closing` was set.
        """
        if self._backoff is None:
            return error
        for pause, url in self._backoff.plan(self._urls, lost, self._environment.random):
            self._environment.pause(pause, closing)
            if closing.is_set():
                return None
            try:
                use(self._dial(url), url)
                return None
            except _FINAL as final:
                return final
            except Exception as failure:  # the next attempt may not meet it
                error = to_penstock_error(failure)
        return error
