"""Brokers that are what the option `url` names: each once."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack

from ...broker_core.client.flight import Client
from ...broker_core.errors import InvalidOption
from ..identity import Identity, identity_of
from ..options import Options

log = logging.getLogger("penstock")


def connected(options: Options, stack: ExitStack) -> list[Client]:
    """Connect to each broker until `stack` ends. Raises PenstockError; InvalidOption where two are the same broker."""
    clients = [stack.enter_context(each.access.client()) for each in options.each()]
    if len(clients) > 1:
        check_identities({client.url: identity_of(client) for client in clients})
    return clients


def check_identities(found: Mapping[str, Identity]) -> None:
    """Raise InvalidOption for a broker with two names; tell of different versions."""
    urls: dict[str, str] = {}
    for url, identity in found.items():
        if identity.broker in urls:
            raise InvalidOption(
                f"option url names one broker twice: {urls[identity.broker]} and {url} are both broker {identity.broker}"
                " (or run on copies of one data directory): name it once"
            )
        urls[identity.broker] = url
    if len({identity.product for identity in found.values()}) > 1:
        versions = ", ".join(f"{identity.product} at {url}" for url, identity in found.items())
        log.warning("the brokers of a query have different versions: %s. What the oldest cannot do fails there", versions)
