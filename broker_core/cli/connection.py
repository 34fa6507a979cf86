"""`penstock connection …`"""

from __future__ import annotations

import argparse
import time
from datetime import datetime, timezone
from typing import Any

from ..errors import NotFound
from . import calls, show

_LIST = {
    **show.columns("connection", "user", "peer", "queues", "container", "links", "credit", "unsettled", "slow", "since"),
    **show.columns(tls="TLS"),
}
_CONSUMERS = {
    **show.columns("queue", "connection", "user", "selector", "priority", "groups", "credit", "unsettled"),
    **show.columns(sentPerSecond="sent/s", settledPerSecond="settled/s", lastSettled="last settled"),
}
_SELDOM = ("selector", "priority", "groups")  # shown if a consumer has any


def list_all(args: argparse.Namespace) -> int:
    connections = calls.ask(args, "connection.list")["connections"]
    if args.slow:
        connections = [connection for connection in connections if connection["slow"]]
    if args.consumers:
        return _list_consumers(args, connections)
    return show.listed(args, connections, _LIST, empty="no such connections", rows=list(map(_row, connections)))


def _list_consumers(args: argparse.Namespace, connections: list[dict[str, Any]]) -> int:
    consumers = [
        {**link, "connection": connection["id"], "user": connection["user"]}
        for connection in connections
        for link in connection["links"]
        if link["role"] == "consumer"
    ]
    shown = {key: head for key, head in _CONSUMERS.items() if key not in _SELDOM or any(link[key] for link in consumers)}
    rows = [{**consumer, "lastSettled": _age(consumer["lastSettled"])} for consumer in consumers]
    return show.listed(args, consumers, shown, empty="no consumer is connected", rows=rows)


def _age(micros: int | None) -> str | None:
    return None if micros is None else f"{show.duration(max(0.0, time.time() - micros / 1e6))} ago"


def _row(connection: dict[str, Any]) -> dict[str, Any]:
    links = connection["links"]
    return {
        **connection,
        "connection": connection["id"],
        "since": datetime.fromtimestamp(connection["since"] / 1e6, timezone.utc),
        "links": connection["linkCount"],
        "queues": sorted({link["queue"] for link in links if link["queue"]}),
        "credit": sum(link["credit"] for link in links),
        "unsettled": sum(link["unsettled"] for link in links),
    }


def close(args: argparse.Namespace) -> int:
    answer = calls.ask(args, "connection.close", id=args.name, reason=args.reason)
    if not answer["closed"]:
        raise NotFound(f"there is no connection {args.name!r}, or it is closed: see `penstock connection list`")
    return show.answer(args, answer, f"connection {args.name} is closed; its messages are back in their queues")
