"""Servers of a connection: the order in which they are tried, at first and after a loss."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ... import errors
from .backoff import Backoff
from .wire import Wire, ours

#: Errors that no other server and no waiting mends: a wrong password tried again and again only locks the account.
_FINAL = (errors.Unauthenticated, errors.NotAllowed)


class Dependencies(NamedTuple):
    """Functions that a connection calls: injected, so that tests can give their own.

    `dial` opens a wire to a url, without its pump; `clock` returns seconds, `wall` seconds since 1970, `random` a number from 0
    to 1; `pause(seconds, closing)` waits that long, or until the event is set.
    """

    dial: Callable[[str], Wire]
    clock: Callable[[], float]
    wall: Callable[[], float]
    random: Callable[[], float]
    pause: Callable[[float, threading.Event], object]


class Servers:
    """Servers tried in the order of `urls`. Without a `backoff` a loss is final."""

    def __init__(self, urls: Sequence[str], dependencies: Dependencies, backoff: Backoff | None) -> None:
        self._urls = list(urls)
        self._dependencies = dependencies
        self._backoff = backoff

    def __str__(self) -> str:
        return ", ".join(self._urls)

    def first(self) -> tuple[Wire, str]:
        """Connect to the first server that answers; each is tried once. Raises the last one's error."""
        for url in self._urls[:-1]:
            try:
                return self._dependencies.dial(url), url
            except errors.PeerError:
                pass
        return self._dependencies.dial(self._urls[-1]), self._urls[-1]

    def reconnect(
        self, lost: str, error: errors.PenstockError, closing: threading.Event, use: Callable[[Wire, str], None]
    ) -> errors.PenstockError | None:
        """Dial after `lost` was lost with `error`, until `use` takes a wire without raising.

        Returns the final error, or None when there is a server again or `closing` was set.
        """
        if self._backoff is None:
            return error
        for pause, url in self._backoff.plan(self._urls, lost, self._dependencies.random):
            self._dependencies.pause(pause, closing)
            if closing.is_set():
                return None
            try:
                wire = self._dependencies.dial(url)
                try:
                    use(wire, url)
                except BaseException:
                    wire.close()
                    raise
                return None
            except _FINAL as final:
                return final
            except Exception as failed:  # whatever it is, it may be over at the next attempt
                error = ours(failed)
        return error
