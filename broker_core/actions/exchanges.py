"""The actions about exchanges: a request's fields into commands, replies into answers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..engine import commands as c
from ..selectors import hints_of, parse_optional
from ..service.broker import BrokerService
from .hinting import with_hints


def exchange_actions(service: BrokerService) -> dict[str, Callable[[dict[str, Any]], dict[str, Any]]]:
    """By name, as in `requests.ACTIONS`."""

    def declare(f: dict[str, Any]) -> dict[str, Any]:
        created = service.submit(c.DeclareExchange(f["exchange"], f["type"], f["options"]))
        return {"exchange": f["exchange"], "created": created}

    def delete(f: dict[str, Any]) -> dict[str, Any]:
        service.submit(c.DeleteExchange(f["exchange"]))
        return {"exchange": f["exchange"]}

    def bind(f: dict[str, Any]) -> dict[str, Any]:
        selector = parse_optional(f["selector"])
        text = None if selector is None else selector.text
        command = c.Bind(f["exchange"], f["queue"], f["key"], f["arguments"], text, f["noLocal"])
        return with_hints({"created": service.submit(command)}, hints_of(selector))

    return {
        "exchange.declare": declare,
        "exchange.delete": delete,
        "exchange.list": lambda f: {"exchanges": service.submit(c.ListExchanges())},
        "exchange.bind": bind,
        "exchange.unbind": lambda f: {"unbound": service.submit(c.Unbind(f["exchange"], f["queue"], f["key"]))},
    }
