"""`penstock connection …`"""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from typing import Any

from ..errors import NotFound
from . import calls, show

_LIST = {
    **show.columns("connection", "user", "peer", "queues", "container", "links", "credit", "unsettled", "slow", "since"),
    **show.columns(tls="TLS"),
}


def list_all(args: argparse.Namespace) -> int:
    connections = calls.ask(args, "connection.list")["connections"]
    if args.slow:
        connections = [connection for connection in connections if connection["slow"]]
    return show.listed(args, connections, _LIST, empty="no such connections", rows=list(map(_row, connections)))


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
