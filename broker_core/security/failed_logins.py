"""The limit on failed logins, which makes guessing slow.

A window of time has limits on the failures of one peer with one name, and with any name. A peer is an address without its port.
If clients share an address (loopback, a proxy), guesses can only block first logins: tokens, and passwords that were right
recently, are accepted.
"""

from __future__ import annotations

import ipaddress
import threading
import time
from collections import OrderedDict
from collections.abc import Callable

from .users import MAX_NAME

FAILURES_OF_A_NAME = 10  # at most 14,400 guesses a day
FAILURES_OF_A_PEER = 100  # limits the computation that a peer can cause
WINDOW_S = 60.0
REMEMBERED = 20_000  # counts of at most 1 KiB


class Attempts:
    """Counts of failed logins. Thread-safe."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._lock = threading.Lock()
        self._counts: OrderedDict[tuple[str, str | None], tuple[float, int]] = OrderedDict()  # start of the window, count

    def blocked(self, peer: str, name: str | None = None) -> bool:
        """Return True if logins with this name, or with any, are refused without a check."""
        limits = zip(_keys(peer, name), (FAILURES_OF_A_PEER, FAILURES_OF_A_NAME), strict=False)
        with self._lock:
            return any(self._count(key) >= limit for key, limit in limits)

    def failed(self, peer: str, name: str | None = None) -> None:
        with self._lock:
            for key in _keys(peer, name):
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
    """Return an address, or for IPv6 its /64 network, which usually belongs to one machine.

    `peer` is `host:port`, `[v6]:port`, gRPC's `ipv4:host:port` or `ipv6:%5Bv6%5D:port`, or a bare host.
    """
    text, address = _address(peer)
    if isinstance(address, ipaddress.IPv6Address):
        return str(ipaddress.ip_network((int(address) >> 64 << 64, 64)))
    return text[:MAX_NAME] if address is None else str(address)


def address_text(peer: str) -> str:
    """Return `host:port` or `[v6]:port`, without gRPC's prefix and escapes."""
    return peer.replace("%5B", "[").replace("%5D", "]").removeprefix("ipv4:").removeprefix("ipv6:")


def on_this_machine(peer: str) -> bool:
    text, address = _address(peer)
    return text == "unix" if address is None else address.is_loopback


def _address(peer: str) -> tuple[str, ipaddress.IPv4Address | ipaddress.IPv6Address | None]:
    text = address_text(peer)
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return text, None
    return text, (address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None) or address


def _keys(peer: str, name: str | None) -> list[tuple[str, str | None]]:
    host = host_of(peer)
    # A client chooses the name, so its length is limited.
    return [(host, None)] if name is None else [(host, None), (host, name[:MAX_NAME])]
