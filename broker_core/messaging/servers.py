"""The servers that a connection may be to: which one is taken first, and which after a loss."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import NamedTuple

from penstock.broker_core import errors
from penstock.broker_core.messaging.backoff import Backoff
from penstock.broker_core.messaging.wire import Wire

#: What no other server and no waiting mends: a wrong password tried again and again only locks an account.
_FINAL = (errors.Unauthenticated, errors.NotAllowed)


class Means(NamedTuple):
    """What a connection takes from the world: given, so that tests can say what happens.

    `dial` makes an open wire to a url, not pumped yet; `clock` counts seconds, `wall` seconds since 1970; `random` gives 0 to 1;
    `pause(seconds, closing)` waits so long, or until the event is set.
    """

    dial: Callable[[str], Wire]
    clock: Callable[[], float]
    wall: Callable[[], float]
    random: Callable[[], float]
    pause: Callable[[float, threading.Event], object]


class Servers:
    """Tried in the order of `urls`. Without a `backoff` a loss is final."""

    def __init__(self, urls: Sequence[str], means: Means, backoff: Backoff | None) -> None:
        self._urls = list(urls)
        self._means = means
        self._backoff = backoff

    def __str__(self) -> str:
        return ", ".join(self._urls)

    def first(self) -> tuple[Wire, str]:
        """The first that answers; each is tried once. Raises the last one's error."""
        for url in self._urls[:-1]:
            try:
                return self._means.dial(url), url
            except errors.PeerError:
                pass
        return self._means.dial(self._urls[-1]), self._urls[-1]

    def again(
        self, lost: str, error: errors.PenstockError, closing: threading.Event, use: Callable[[Wire, str], None]
    ) -> errors.PenstockError | None:
        """After `lost` was lost with `error`: dials until `use` takes a wire without raising. Returns the error that is final, if
        it comes to that; None when there is a server again, or `closing` was set.
        """
        if self._backoff is None:
            return error
        for pause, url in self._backoff.plan(self._urls, lost, self._means.random):
            self._means.pause(pause, closing)
            if closing.is_set():
                return None
            try:
                wire = self._means.dial(url)
                try:
                    use(wire, url)
                except BaseException:
                    wire.close()
                    raise
                return None
            except _FINAL as final:
                return final
            except errors.PenstockError as failed:
                error = failed
        return error
