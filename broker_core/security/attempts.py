"""The limit on failed logins: guessing a password is slow, for whom guesses, and for nobody else.

Two limits in a window of time: on failures of one peer with one name, and of one peer with any. A peer is an address without its
port. Where many share an address (loopback, a proxy), a guesser can stop others there only from logging in for the first time:
a password that was right before is let through (`Access.login`), and so is a token.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from .users import MAX_NAME

FAILURES_OF_A_NAME = 10  # from one peer in a window: nobody mistypes more often; a guesser gets 14,400 guesses a day
FAILURES_OF_A_PEER = 100  # from one peer in a window, with whatever names: bounds what it can make the broker compute
WINDOW_S = 60.0
REMEMBERED = 20_000  # counts, of 1 KiB at most each; the oldest goes


class Attempts:
    """Thread-safe. `clock` is monotonic, in seconds.

    `turn`: to be had by who looks at a proof in no time, from asking whether it is blocked to counting its failure.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self.turn = threading.Lock()
        self._lock = threading.Lock()
        self._counts: OrderedDict[tuple[str, str | None], tuple[float, int]] = OrderedDict()  # since when, how many

    def blocked(self, peer: str, name: str | None = None) -> bool:
        """Say whether a login from there, with that name, is refused unseen. Without a name: whether any is."""
        host, name = host_of(peer), _short(name)
        with self._lock:
            if self._count((host, None)) >= FAILURES_OF_A_PEER:
                return True
            return name is not None and self._count((host, name)) >= FAILURES_OF_A_NAME

    def failed(self, peer: str, name: str | None = None) -> None:
        """A login from there has failed. `name` None: nobody knows with which."""
        host, name = host_of(peer), _short(name)
        with self._lock:
            for key in ((host, None),) if name is None else ((host, None), (host, name)):
                count = self._count(key)
                since = self._counts[key][0] if count else self._clock()
                self._counts[key] = (since, count + 1)
                if len(self._counts) > REMEMBERED:
                    self._counts.popitem(last=False)

    def _count(self, key: tuple[str, str | None]) -> int:
        since, count = self._counts.get(key, (0.0, 0))
        if count and self._clock() - since >= WINDOW_S:
            del self._counts[key]
            return 0
        return count


def host_of(peer: str) -> str:
    """Whom a peer counts as: its address; of IPv6 the network of 64 bits, all of which one machine has to itself.

    `peer` is `host:port`, `[v6]:port`, gRPC's `ipv4:host:port` or `ipv6:%5Bv6%5D:port`, or a bare host.
    """
    text, address = _address(peer)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return text[:MAX_NAME] if address is None else str(address)


def on_this_machine(peer: str) -> bool:
    """Say whether what passes between `peer` and us leaves no machine. `peer` as for `host_of`."""
    text, address = _address(peer)
    return text == "unix" if address is None else address.is_loopback


def _address(peer: str) -> tuple[str, ipaddress.IPv4Address | ipaddress.IPv6Address | None]:
    text = peer.replace("%5B", "[").replace("%5D", "]").removeprefix("ipv4:").removeprefix("ipv6:")
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text, None
    return text, (address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None) or address


def _short(name: str | None) -> str | None:
    """A stranger's text is not kept at any length."""
    return None if name is None else name[:MAX_NAME]
