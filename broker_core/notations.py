"""Addresses of other brokers and their clients, and the same address here: a queue, an exchange, or EXCHANGE/KEY.

| notation | used by |
|---|---|
| `/queues/q`, `/exchanges/e/key` | RabbitMQ 4, percent-encoded |
| `/queue/q`, `/amq/queue/q`, `/exchange/e/key`, `/topic/key` | RabbitMQ 3; `/topic/` is its exchange `amq.topic` |
| `queue://q`, `topic://t` | ActiveMQ, Artemis, Qpid JMS |
| `amqp://host/q`, `amqps://host:port/q` | some clients take a URL |
"""

from __future__ import annotations

import re
from urllib.parse import unquote

_URL = re.compile(r"amqps?://[^/]*/(.+)", re.DOTALL)
_SCHEME = re.compile(r"(?:queue|topic|temp-queue|temp-topic)://([^?]+)(?:\?.*)?", re.DOTALL)
_QUEUE = re.compile(r"/?(?:amq/)?queue/(.+)", re.DOTALL)
_ENCODED = re.compile(r"(?:/?queues|/exchanges)/(.+)", re.DOTALL)
_EXCHANGE = re.compile(r"/exchange/(.+)", re.DOTALL)
_TOPIC = re.compile(r"/topic/(.+)", re.DOTALL)


def plain(address: str) -> str | None:
    """Return an address in this broker's notation; None for no notation of another broker. An exchange may be called `queues`, so
    look for an existing node of that name first."""
    if match := _URL.fullmatch(address):
        rest = unquote(match[1])
        return plain(f"/{rest}") or rest
    if match := _SCHEME.fullmatch(address):
        return match[1].strip("/") or None
    for pattern in (_QUEUE, _EXCHANGE):
        if match := pattern.fullmatch(address):
            return match[1]
    if match := _ENCODED.fullmatch(address):
        return unquote(match[1])
    if match := _TOPIC.fullmatch(address):
        return f"amq.topic/{match[1]}"
    return address[1:] if address[:1] == "/" and len(address) > 1 and "/" not in address[1:] else None


def advice(address: str) -> str | None:
    """Return what to write instead of another broker's notation, without the URL, which may have a password."""
    plain_address = plain(address)
    return None if plain_address is None else f"an address here has no prefix and no URL: use {plain_address!r:.120}"
