"""`penstock exchange …`"""

from __future__ import annotations

import argparse
import json
from typing import Any, NoReturn

from . import calls, show
from .pairs import pairs

_LIST = {"exchange": "exchange", "type": "type", "options": "options", "queue": "queue", "says": "binding"}


def declare(args: argparse.Namespace) -> int:
    options = pairs(args.option)
    with calls.broker(args) as broker:
        answer = broker.call("exchange.declare", exchange=args.name, type=args.type, options=options)
    result = "is declared" if answer["created"] else "exists already, with the same type and options"
    return show.answer(args, answer, f"exchange {args.name} {result}")


def delete(args: argparse.Namespace) -> int:
    with calls.broker(args) as broker:
        answer = broker.call("exchange.delete", exchange=args.name)
    return show.answer(args, answer, f"exchange {args.name} is deleted")


def list_all(args: argparse.Namespace) -> int:
    with calls.broker(args) as broker:
        exchanges = broker.call("exchange.list")["exchanges"]
    if args.json:
        show.print_json(exchanges)
    else:
        rows = [row for exchange in exchanges for row in _rows(exchange)]
        show.print_table(rows, _LIST, empty="no exchanges yet; declare one with `penstock exchange declare NAME`")
    return 0


def _rows(exchange: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a line for each binding. The first line names the exchange."""
    head = {"exchange": exchange["exchange"], "type": exchange["type"], "options": _pairs(exchange["options"])}
    rows = [{"queue": binding["queue"], "says": _described(binding)} for binding in exchange["bindings"]] or [{}]
    return [{**dict.fromkeys(_LIST, ""), **(head if number == 0 else {}), **row} for number, row in enumerate(rows)]


def _described(binding: dict[str, Any]) -> str:
    parts = [f"key {binding['key']}"] if "key" in binding else []
    parts += [_pairs(binding["arguments"])] if "arguments" in binding else []
    parts += [f"selector {binding['selector']}"] if "selector" in binding else []
    parts += [f"not from {binding['noLocal']}"] if "noLocal" in binding else []
    return ", ".join(parts)


def _pairs(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def bind(args: argparse.Namespace) -> int:
    arguments = {name: _value(text) for name, text in pairs(args.argument, "--argument").items()}
    asked = {"key": args.key, "arguments": arguments, "selector": args.selector}
    with calls.broker(args) as broker:
        answer = broker.call("exchange.bind", exchange=args.name, queue=args.queue, **asked)
    result = "is bound" if answer["created"] else "was already bound in the same way"
    return show.answer(args, answer, f"exchange {args.name} {result} to queue {args.queue}")


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python accepts as JSON."""
    raise ValueError(name)


def unbind(args: argparse.Namespace) -> int:
    with calls.broker(args) as broker:
        answer = broker.call("exchange.unbind", exchange=args.name, queue=args.queue, key=args.key)
    return show.answer(args, answer, f"{answer['unbound']} bindings of exchange {args.name} to queue {args.queue} are removed")
