"""Decisions about exchanges and their bindings. An exchange and a queue never have the same name."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ... import errors, notations
from .. import commands as c
from .. import events as e
from ..columns.limits import MAX_ARGUMENTS, MAX_BINDINGS, MAX_DEFINITION, MAX_EXCHANGES, MAX_KEY, MAX_PATTERN_WORDS
from ..columns.losses import EXCHANGE_DROPPED, EXCHANGE_REFUSED
from ..model import header_bindings
from ..model.bindings import Binding
from ..model.exchange import Exchange
from ..model.exchange_options import OPTIONS, checked
from ..model.names import check_name, check_node_name
from ..model.state import BrokerState
from ..model.topics import words_of
from .decision import Decision, decides, need_queue
from .queues import user_of

_WAY_OUT = "declare it as it is, or delete it first (`penstock exchange delete`)"


def need_exchange(state: BrokerState, name: str) -> Exchange:
    exchange = state.exchanges.by_name.get(name)
    if exchange is None:
        remedy = notations.advice(name) or "declare it with `penstock exchange declare`"
        raise errors.ExchangeNotFound(f"there is no exchange {name!r:.300}: {remedy}")
    return exchange


@decides(c.DeclareExchange)
def declare_exchange(state: BrokerState, command: c.DeclareExchange, now: c.Now) -> Decision[bool]:
    check_node_name("exchange", command.exchange)
    policy = state.policies.options_of(command.exchange, command.type)
    options = checked(command.type, {**policy, **command.options})
    exchange = state.exchanges.by_name.get(command.exchange)
    if exchange is not None:
        # A policy may have changed: only the other options must be the same.
        asked = [name for name in OPTIONS if name in command.options or name not in policy]
        _check_alike(exchange, command.type, options, asked)
        return Decision([], False)
    if command.exchange in state.queues:
        raise errors.AlreadyExists(f"{command.exchange!r} is a queue: an exchange needs a name that no queue has")
    alternate = options.get("alternate")
    if alternate is not None and alternate not in state.queues and alternate not in state.exchanges.by_name:
        raise errors.NotFound(f"option 'alternate': there is no queue or exchange {alternate!r}: declare it first")
    if len(state.exchanges.by_name) >= MAX_EXCHANGES:
        raise errors.ResourceLimit(f"the broker has {MAX_EXCHANGES} exchanges, which is its limit: delete one first")
    user = user_of(state, command.maker)
    return Decision([(e.ExchangeDeclared(command.exchange, command.type, options, user), None)], True)


def _check_alike(exchange: Exchange, kind: str, options: dict[str, Any], asked: list[str]) -> None:
    if exchange.kind != kind:
        raise errors.AlreadyExists(f"exchange {exchange.name!r} exists with type {exchange.kind!r}, not {kind!r}: {_WAY_OUT}")
    for name in asked:
        if exchange.options.get(name) != options.get(name):
            raise errors.AlreadyExists(
                f"exchange {exchange.name!r} exists with another option {name!r}: {exchange.options.get(name, 'its default')!r}, "
                f"not {options.get(name, 'its default')!r}: {_WAY_OUT}"
            )


@decides(c.DeleteExchange)
def delete_exchange(state: BrokerState, command: c.DeleteExchange, now: c.Now) -> Decision[None]:
    exchange = need_exchange(state, command.exchange)
    return Decision([(e.ExchangeDeleted(exchange.name), None)], None)


@decides(c.Bind)
def bind(state: BrokerState, command: c.Bind, now: c.Now) -> Decision[bool]:
    exchange, queue = need_exchange(state, command.exchange), need_queue(state, command.queue)
    conditions = command.key, command.arguments, command.selector, command.no_local
    binding = Binding(queue.name, *conditions, command.name, command.definition)
    _check_binding(exchange, binding)
    if (binding.name is not None and _is_bound(exchange, binding)) or exchange.number_of(binding) is not None:
        return Decision([], False)
    if len(exchange.bindings) >= MAX_BINDINGS:
        raise errors.ResourceLimit(
            f"exchange {exchange.name!r} has {MAX_BINDINGS} bindings, which is the limit: unbind some first"
        )
    return Decision([(e.Bound(exchange.name, exchange.next_number, binding.to_json()), None)], True)


def _check_binding(exchange: Exchange, binding: Binding) -> None:
    if binding.key and not exchange.by_key:
        raise errors.InvalidRequest(f"key {binding.key!r:.80}: a {exchange.kind} exchange looks at no routing key; leave it out")
    if len(binding.key) > MAX_KEY:
        raise errors.InvalidRequest(f"key: it has {len(binding.key)} characters; at most {MAX_KEY} are allowed")
    if exchange.kind == "topic" and len(words_of(binding.key)) > MAX_PATTERN_WORDS:
        raise errors.InvalidRequest(
            f"key: the pattern has {len(words_of(binding.key))} words; at most {MAX_PATTERN_WORDS} are allowed"
        )
    if binding.arguments and exchange.kind != "headers":
        raise errors.InvalidRequest(f"arguments: a {exchange.kind} exchange looks at no headers; leave them out")
    if len(binding.arguments) > MAX_ARGUMENTS:
        raise errors.InvalidRequest(f"arguments: there are {len(binding.arguments)}; at most {MAX_ARGUMENTS} are allowed")
    header_bindings.check(binding.arguments)


def _is_bound(exchange: Exchange, binding: Binding) -> bool:
    """Return True if a binding of this name has these conditions. A binding with a definition is always new. Raises
    AlreadyExists, InvalidRequest."""
    check_name("binding", binding.name or "")
    known = next((known for known in exchange.bindings_of(binding.queue).values() if known.name == binding.name), None)
    if known is not None:
        if binding.definition is None and replace(known, definition=None) == binding:
            return True
        raise errors.AlreadyExists(
            f"exchange {exchange.name!r:.80} has a binding {binding.name!r:.80} to {binding.queue!r:.80}: remove it first, or "
            "choose another name"
        )
    if len(binding.definition or "") > MAX_DEFINITION:
        raise errors.InvalidRequest(
            f"binding {binding.name!r:.80}: its definition has {len(binding.definition or '')} characters; at most "
            f"{MAX_DEFINITION} are allowed"
        )
    return False


@decides(c.Unbind)
def unbind(state: BrokerState, command: c.Unbind, now: c.Now) -> Decision[int]:
    exchange = need_exchange(state, command.exchange)
    numbers = exchange.numbers_of(command.queue, command.key)
    if command.number is not None:
        numbers = [number for number in numbers if number == command.number]
    if not numbers:
        key = "" if command.key is None else f" with the key {command.key!r:.80}"
        raise errors.NotFound(
            f"exchange {exchange.name!r} has no binding to {command.queue!r:.300}{key}: see `penstock exchange list`"
        )
    return Decision([(e.Unbound(exchange.name, numbers), None)], len(numbers))


@decides(c.ListExchanges)
def list_exchanges(state: BrokerState, command: c.ListExchanges, now: c.Now) -> Decision[list[dict[str, Any]]]:
    exchanges = state.exchanges.by_name.values() if command.exchange is None else [need_exchange(state, command.exchange)]
    return Decision([], [_described(exchange) for exchange in exchanges])


def _binding_json(binding: Binding) -> dict[str, Any]:
    names = {"no_local": "noLocal"}
    return {names.get(name, name): value for name, value in binding.to_json().items() if name != "definition"}


def _described(exchange: Exchange) -> dict[str, Any]:
    return {
        "exchange": exchange.name,
        "type": exchange.kind,
        "options": exchange.options,
        "bindings": [_binding_json(binding) for binding in exchange.bindings.values()],
        "messages": exchange.messages,
        "refusedMessages": exchange.losses.among(EXCHANGE_REFUSED),
        "droppedMessages": exchange.losses.among(EXCHANGE_DROPPED),
    }
