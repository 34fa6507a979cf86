"""`penstock exchange …`: declare, delete, list, bind, unbind."""

from __future__ import annotations

import argparse
import json
from typing import Any, NoReturn

from . import calls, show
from .pairs import pairs

_LIST = {"exchange": "exchange", "type": "type", "options": "options", "queue": "queue", "says": "binding"}


def declare(given: argparse.Namespace) -> int:
    """Run `penstock exchange declare`."""
    options = pairs(given.option)
    with calls.broker(given) as broker:
        answer = broker.call("exchange.declare", exchange=given.name, type=given.type, options=options)
    said = "is declared" if answer["created"] else "was there already, with the same type and options"
    return show.answer(given, answer, f"exchange {given.name} {said}")


def delete(given: argparse.Namespace) -> int:
    """Run `penstock exchange delete`."""
    with calls.broker(given) as broker:
        answer = broker.call("exchange.delete", exchange=given.name)
    return show.answer(given, answer, f"exchange {given.name} is deleted")


def list_all(given: argparse.Namespace) -> int:
    """Run `penstock exchange list`."""
    with calls.broker(given) as broker:
        exchanges = broker.call("exchange.list")["exchanges"]
    if given.json:
        show.print_json(exchanges)
    else:
        rows = [row for exchange in exchanges for row in _rows(exchange)]
        show.print_table(rows, _LIST, empty="no exchanges yet; make one with `penstock exchange declare NAME`")
    return 0


def _rows(exchange: dict[str, Any]) -> list[dict[str, Any]]:
    """A line for each binding; the exchange is named in the first."""
    head = {"exchange": exchange["exchange"], "type": exchange["type"], "options": _pairs(exchange["options"])}
    rows = [{"queue": binding["queue"], "says": _said(binding)} for binding in exchange["bindings"]] or [{}]
    return [{**dict.fromkeys(_LIST, ""), **(head if number == 0 else {}), **row} for number, row in enumerate(rows)]


def _said(binding: dict[str, Any]) -> str:
    parts = [f"key {binding['key']}"] if "key" in binding else []
    parts += [_pairs(binding["arguments"])] if "arguments" in binding else []
    parts += [f"selector {binding['selector']}"] if "selector" in binding else []
    parts += [f"not from {binding['noLocal']}"] if "noLocal" in binding else []
    return ", ".join(parts)


def _pairs(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def bind(given: argparse.Namespace) -> int:
    """Run `penstock exchange bind`."""
    arguments = {name: _value(text) for name, text in pairs(given.argument, "--argument").items()}
    asked = {"key": given.key, "arguments": arguments, "selector": given.selector}
    with calls.broker(given) as broker:
        answer = broker.call("exchange.bind", exchange=given.name, queue=given.queue, **asked)
    said = "leads" if answer["created"] else "led already, bound alike,"
    return show.answer(given, answer, f"exchange {given.name} {said} to queue {given.queue}")


def _value(text: str) -> Any:
    """Parse a text as JSON; a text that is none stands for itself."""
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(name: str) -> NoReturn:
    """Python takes NaN and Infinity for JSON."""
    raise ValueError(name)


def unbind(given: argparse.Namespace) -> int:
    """Run `penstock exchange unbind`."""
    with calls.broker(given) as broker:
        answer = broker.call("exchange.unbind", exchange=given.name, queue=given.queue, key=given.key)
    return show.answer(given, answer, f"{answer['unbound']} bindings of exchange {given.name} to queue {given.queue} are gone")
