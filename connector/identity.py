"""Identities of brokers: the brokers of a query must be different ones."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from contextlib import ExitStack
from typing import NamedTuple

from ..broker_core.client.flight import Client
from ..broker_core.errors import InvalidOption
from .options import Options

log = logging.getLogger("penstock")


class Identity(NamedTuple):
    """Id of a broker; its product and version."""

    broker: str
    product: str


def identity_of(client: Client) -> Identity:
    answer = client.call("hello")
    return Identity(answer["broker"], answer["product"])


def connected(options: Options, stack: ExitStack) -> list[Client]:
    """Connect to each broker until `stack` ends. Raises InvalidOption for the same broker twice."""
    clients = [stack.enter_context(broker.access.client()) for broker in options.per_broker()]
    if len(clients) > 1:
        check_identities({client.url: identity_of(client) for client in clients})
    return clients


def check_identities(identities: Mapping[str, Identity]) -> None:
    urls: dict[str, str] = {}
    for url, identity in identities.items():
        if identity.broker in urls:
            raise InvalidOption(
                f"option url names one broker twice: {urls[identity.broker]} and {url} are both broker {identity.broker}"
                " (or run on copies of one data directory): name it once"
            )
        urls[identity.broker] = url
    if len({identity.product for identity in identities.values()}) > 1:
        versions = ", ".join(f"{identity.product} at {url}" for url, identity in identities.items())
        log.warning("the brokers of a query have different versions: %s. Features that the oldest lacks fail there", versions)
