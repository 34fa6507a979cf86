"""Declarations of the settings, which are carried out when a broker starts.

The same declaration again changes nothing. One that contradicts what is there stops the start with the field's name, and nothing
is declared. What the settings no longer declare stays as it is.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any

from ..engine import BrokerState, apply, decide
from ..engine import commands as c
from ..engine import events as e
from ..engine.model.policies import Policies
from ..selectors import hints_of, parse_optional
from .policies import in_field, policies_of

log = logging.getLogger("penstock")

if TYPE_CHECKING:
    from ..settings.declarations import DeclaredBinding
    from ..settings.keys import Settings
    from .broker import BrokerService


def prepare(service: BrokerService, settings: Settings) -> None:
    """Declare the queues, exchanges and bindings of the settings. Raises InvalidRequest, which names the wrong field."""
    rehearsal = _rehearsal(service.state, policies_of(settings))
    commands = [(where, in_field(where, partial(_rehearsed, rehearsal, make))) for where, make in _commands(settings)]
    for where, command in commands:
        in_field(where, partial(service.submit_here, command))
    for number, binding in enumerate(settings.bindings):
        for hint in hints_of(parse_optional(binding.selector)):
            log.warning("bindings[%d].selector: %s", number, hint)


def _rehearsal(state: BrokerState, policies: Policies) -> BrokerState:
    """Return a state with the same queues and exchanges, all of them empty and unbound."""
    stage = BrokerState(policies)
    for queue in state.queues.values():
        apply(stage, e.QueueDeclared(queue.name, queue.kind, queue.options), 0)
    for exchange in state.exchanges.by_name.values():
        apply(stage, e.ExchangeDeclared(exchange.name, exchange.kind, exchange.options), 0)
    return stage


def _rehearsed(stage: BrokerState, make: Callable[[], c.Command[Any]]) -> c.Command[Any]:
    command = make()
    for event, _ in decide(stage, command, c.Now(0, 0)).events:
        apply(stage, event, 0)
    return command


def _commands(settings: Settings) -> Iterator[tuple[str, Callable[[], c.Command[Any]]]]:
    for number, queue in enumerate(settings.queues):
        yield f"queues[{number}]", partial(c.DeclareQueue, queue.name, queue.type, dict(queue.options))
    for number, exchange in enumerate(settings.exchanges):
        yield f"exchanges[{number}]", partial(c.DeclareExchange, exchange.name, exchange.type, dict(exchange.options))
    for number, binding in enumerate(settings.bindings):
        yield f"bindings[{number}]", partial(_bind, binding)


def _bind(one: DeclaredBinding) -> c.Command[Any]:
    selector = parse_optional(one.selector)
    text = None if selector is None else selector.text
    return c.Bind(one.exchange, one.queue, one.key, dict(one.arguments), text)
