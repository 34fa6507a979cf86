"""`penstock exchange …`"""

from __future__ import annotations

import argparse
import json
from functools import partial
from typing import Any, NoReturn

from . import calls, show

_LIST = show.columns("exchange", "type", "options", "queue", says="binding", messages="messages", lost="refused, dropped")
_COUNTS = ("messages", "lost")  # shown if an exchange has received messages

declare = partial(calls.declare, kind="exchange")


def delete(args: argparse.Namespace) -> int:
    answer = calls.ask(args, "exchange.delete", exchange=args.name)
    return show.answer(args, answer, f"exchange {args.name} is deleted")


def list_all(args: argparse.Namespace) -> int:
    exchanges = calls.ask(args, "exchange.list")["exchanges"]
    rows = [row for exchange in exchanges for row in _rows(exchange)]
    is_used = any(exchange["messages"] for exchange in exchanges)
    columns = {key: heading for key, heading in _LIST.items() if is_used or key not in _COUNTS}
    empty = "no exchanges yet; declare one with `penstock exchange declare NAME`"
    return show.listed(args, exchanges, columns, empty=empty, rows=rows)


def _rows(exchange: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a row for each binding. The first one names the exchange."""
    head = {"exchange": exchange["exchange"], "type": exchange["type"], "options": _pairs(exchange["options"])}
    lost = _pairs({**exchange["refusedMessages"], **exchange["droppedMessages"]})
    head |= {"messages": exchange["messages"], "lost": lost}
    rows = [{"queue": binding["queue"], "says": _described(binding)} for binding in exchange["bindings"]] or [{}]
    return [{**dict.fromkeys(_LIST, ""), **(head if number == 0 else {}), **row} for number, row in enumerate(rows)]


def _described(binding: dict[str, Any]) -> str:
    parts = [f"key {binding['key']}"] if "key" in binding else []
    parts += [_pairs(binding["arguments"])] if "arguments" in binding else []
    parts += [f"selector {binding['selector']}"] if "selector" in binding else []
    parts += [f"not from {binding['noLocal']}"] if "noLocal" in binding else []
    parts += [f"named {binding['name']}"] if "name" in binding else []
    return ", ".join(parts)


def _pairs(values: dict[str, Any]) -> str:
    return " ".join(f"{name}={value}" for name, value in values.items())


def bind(args: argparse.Namespace) -> int:
    arguments = {name: _value(text) for name, text in calls.pairs(args.argument, "--argument").items()}
    asked = {"key": args.key, "arguments": arguments, "selector": args.selector}
    answer = calls.ask(args, "exchange.bind", exchange=args.name, queue=args.queue, **asked)
    result = "is bound" if answer["created"] else "was already bound in the same way"
    return show.answer(args, answer, f"exchange {args.name} {result} to queue {args.queue}")


def _value(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except ValueError:
        return text


def _refuse(name: str) -> NoReturn:
    """Refuse NaN and Infinity, which Python accepts."""
    raise ValueError(name)


def unbind(args: argparse.Namespace) -> int:
    answer = calls.ask(args, "exchange.unbind", exchange=args.name, queue=args.queue, key=args.key)
    return show.answer(args, answer, f"{answer['unbound']} bindings of exchange {args.name} to queue {args.queue} are removed")
