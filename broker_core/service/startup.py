"""The start of a broker: the state from the journal, then the declarations of the settings, or no declaration if one contradicts
an existing queue or exchange. Queues and exchanges that are no longer declared stay."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

from .. import errors
from ..engine import BrokerState, apply, decide
from ..engine import commands as c
from ..engine import events as e
from ..engine.events import codec
from ..engine.model.policies import Policies, Policy
from ..journal import Journal
from ..logs import counted
from ..selectors import hints_of, parse_optional

R = TypeVar("R")

log = logging.getLogger("penstock")

if TYPE_CHECKING:
    from ..settings.declarations import DeclaredBinding
    from ..settings.keys import Settings


def declare(state: BrokerState, submit: Callable[[c.Command[Any]], object], settings: Settings) -> None:
    """Raises InvalidRequest, which names the field."""
    rehearsal = _rehearsal(state, policies_of(settings))
    commands = [(where, _in_field(where, partial(_rehearsed, rehearsal, make))) for where, make in _commands(settings)]
    for where, command in commands:
        _in_field(where, partial(submit, command))
    for number, binding in enumerate(settings.bindings):
        for hint in hints_of(parse_optional(binding.selector)):
            log.warning("bindings[%d].selector: %s", number, hint)


def policies_of(settings: Settings) -> Policies:
    """Raises InvalidRequest, which names the policy."""
    policies = [Policy(policy.pattern, policy.create, policy.type, policy.options) for policy in settings.policies]
    for number, policy in enumerate(policies):
        _in_field(f"policies[{number}]", policy.check)
    return Policies(policies)


def _in_field(field: str, action: Callable[[], R]) -> R:
    """Turn a refusal into an InvalidRequest that names the field."""
    try:
        return action()
    except errors.StorageError:
        raise
    except errors.PenstockError as error:
        raise errors.InvalidRequest(f"{field} of the settings: {error}") from error


def recovered(journal: Journal, policies: Policies, *, records: bool) -> BrokerState:
    """Return the state of the last snapshot and every later event. Raises StorageError."""
    snapshot = journal.snapshot
    state = BrokerState(policies, records=records)
    if snapshot is not None:
        try:
            state = BrokerState.restore(snapshot.meta, snapshot.arrays, policies, records=records)
        except errors.DamagedJournal as error:  # of a newer format
            raise errors.DamagedJournal(f"{error}{journal.written_by}") from None
    position = 0 if snapshot is None else snapshot.position
    for replayed, record in enumerate(journal.replay(position), 1):
        try:
            event = codec.decode(record.meta)
        except errors.DamagedJournal as error:
            raise errors.DamagedJournal(f"{error}, position {record.position}{journal.written_by}") from None
        try:
            apply(state, event, record.position)
        except Exception as error:
            raise errors.StorageError(
                f"the journal's event {event.kind!r} at position {record.position} cannot be applied "
                f"({type(error).__name__}: {error}), so the broker does not start; nothing was changed. It is a fault of "
                "Penstock's, or the directory was changed by hand: keep a copy of it, start the version that wrote it, "
                "and report this"
            ) from error
        if replayed % 1_000_000 == 0:
            log.info("recovery: %s replayed", counted(replayed, "event"))
    return state


def _rehearsal(state: BrokerState, policies: Policies) -> BrokerState:
    """Return a state with the same queues and exchanges, empty and unbound."""
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


def _bind(binding: DeclaredBinding) -> c.Command[Any]:
    selector = parse_optional(binding.selector)
    text = None if selector is None else selector.text
    return c.Bind(binding.exchange, binding.queue, binding.key, dict(binding.arguments), text)
