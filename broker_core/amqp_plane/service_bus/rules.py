"""Rules of a subscription: named bindings of its queue to the topic.

A message that matches several rules arrives once. A binding without a name is listed as `$Default` if it is unconditional, else
as `binding-NUMBER`. A binding keeps the vendor's filter as the client wrote it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from functools import partial
from typing import Any

from ... import errors
from ...amqp import Condition
from ...amqp.decoder import decode
from ...amqp.encoder import encode
from ...amqp.types import Described, ULong
from ...engine import commands as c
from ...engine.model.bindings import Binding
from ...security.audit import DONE, FAILED, REFUSED, AuditEntry
from ...security.rights import Right
from ...service.turn import Turn
from .. import queue_reads
from ..conditions import Refusal
from ..connections.peer import Peer
from ..nodes import addresses
from ..nodes.subscriptions import EVERYTHING
from . import entities, rule_filters, vendor
from .entities import Entity
from .requests import CONFLICT, NO_CONTENT, NOT_FOUND, OK, Made, NodeResponse, Operation, RequestFailed

MAX_RULES = 2000  # of one subscription, as the vendor allows: each is evaluated for each message of the topic
MAX_LISTED = 1000  # of one response

_BIND, _UNBIND = "exchange.bind", "exchange.unbind"  # in the audit log
_DEFAULT = "$Default"  # the vendor's name of the rule of a new subscription
_TRUE = Described(ULong(vendor.TRUE_FILTER), [])


class SubscriptionRules:
    """Requests about the rules of one subscription."""

    def __init__(self, peer: Peer, entity: Entity) -> None:
        self._peer, self._entity = peer, entity

    def addition(self, name: str, description: object) -> Operation:
        """Read a new rule. Raises Refusal."""
        try:
            selector, shown = _filter(description)
        except Refusal as error:
            self._record(_BIND, FAILED, str(error), name=name)
            raise
        return partial(self._audited, _BIND, name, partial(self._add, name, selector, shown))

    def remove(self, turn: Turn, name: str) -> Made:
        """Raises Refusal, RequestFailed, PenstockError."""
        return self._audited(_UNBIND, name, partial(self._remove, name), turn)

    def _audited(self, action: str, name: str, change: Operation, turn: Turn) -> Made:
        """Carry out a change. If it fails, record that without the broker's lock."""
        try:
            return change(turn)
        except (Refusal, RequestFailed, errors.PenstockError) as error:
            is_refused = isinstance(error, Refusal) and error.condition == Condition.UNAUTHORIZED_ACCESS
            record = partial(self._record, action, REFUSED if is_refused else FAILED, str(error), name=name)
            self._peer.loop.behind_all(turn, record)
            raise

    def _add(self, name: str, selector: str | None, shown: Described, turn: Turn) -> Made:
        topic, queue = self._find(change=True)
        named = self._named(turn, topic, queue)
        if name in named:
            raise RequestFailed(CONFLICT, vendor.ALREADY_EXISTS, f"the subscription has a rule {name!r:.80}: remove it first")
        if len(named) >= MAX_RULES:
            raise errors.ResourceLimit(f"the subscription has {MAX_RULES:,} rules, which is the limit: remove some first")
        kind = queue_reads.exchange_kind(turn, topic)
        if kind == "direct":
            text = f"topic {topic!r:.80} is a direct exchange, whose bindings have a routing key: declare it with --type topic"
            raise Refusal(Condition.NOT_IMPLEMENTED, text)
        key = EVERYTHING if kind == "topic" else ""
        definition = base64.b64encode(encode(shown)).decode()
        turn.execute(c.Bind(topic, queue, key, selector=selector, name=name, definition=definition))
        return partial(self._changed, _BIND, name=name, selector=selector)

    def _remove(self, name: str, turn: Turn) -> Made:
        topic, queue = self._find(change=True)
        numbers = self._named(turn, topic, queue)
        if name not in numbers:
            raise RequestFailed(NOT_FOUND, Condition.NOT_FOUND, f"the subscription has no rule {name!r:.80}")
        turn.execute(c.Unbind(topic, queue, number=numbers[name]))
        return partial(self._changed, _UNBIND, name=name)

    def enumerate(self, turn: Turn, skip: int, top: int) -> Made:
        """Raises Refusal."""
        topic, queue = self._find(change=False)
        bindings = queue_reads.rules(turn, topic, queue)
        named = list(self._named(turn, topic, queue).items())[skip : skip + min(top, MAX_LISTED)]
        if not named:
            return NodeResponse(NO_CONTENT, "there are no more rules")
        return partial(_list_of, [(name, bindings[number]) for name, number in named])

    def _find(self, *, change: bool) -> tuple[str, str]:
        """Return topic and queue. Raises Refusal."""
        path = self._entity.path
        if len(path) != 3 or path[1] != vendor.SUBSCRIPTIONS:
            text = f"{self._entity.name!r:.80} has no rules: they belong to TOPIC/Subscriptions/NAME"
            raise Refusal(Condition.NOT_ALLOWED, text)
        queue = entities.queue_of(self._peer, self._entity, Right.RECEIVE)
        if change:  # a new rule brings other messages of the topic into the queue
            return addresses.find(self._peer, path[0], Right.RECEIVE, ("topic",), makes=False).name, queue
        return path[0], queue

    def _changed(self, action: str, **details: str | None) -> NodeResponse:
        self._record(action, DONE, None, **details)
        return NodeResponse(OK, "OK")

    def _record(self, action: str, outcome: str, error: str | None, **details: str | None) -> None:
        """Add to the audit log, as the command line's action of the same effect."""
        topic, queue = self._entity.path[0], entities.node_of(self._entity.path)[0]
        self._peer.context.audit.add(
            AuditEntry(
                origin=self._peer.origin,
                action=action,
                object=topic,
                outcome=outcome,
                error=error,
                details={"queue": queue, **details},
                by_use=True,
            )
        )

    @staticmethod
    def _named(turn: Turn, topic: str, queue: str) -> dict[str, int]:
        numbers: dict[str, int] = {}
        for number, binding in queue_reads.rules(turn, topic, queue).items():
            default = _DEFAULT if _is_unconditional(binding) and _DEFAULT not in numbers else f"binding-{number}"
            numbers[binding.name or default] = number
        return numbers


def _is_unconditional(binding: Binding) -> bool:
    return binding.key in ("", EVERYTHING) and not binding.looks_inside and binding.no_local is None


def _filter(description: object) -> tuple[str | None, Described]:
    """Return the selector of a rule, None for every message, and the filter as it is listed. Raises Refusal."""
    if not isinstance(description, Mapping):
        raise Refusal(Condition.INVALID_FIELD, f"'rule-description' is a map, not {description!r:.80}")
    if action := description.get("sql-rule-action"):
        text = (
            f"the action {action!r:.80}: a rule here selects messages and does not change them; let the sender set the property"
        )
        raise Refusal(Condition.NOT_IMPLEMENTED, text)
    correlation, sql = description.get("correlation-filter"), description.get("sql-filter")
    if isinstance(correlation, Mapping):
        fields = [correlation.get(name) for name in rule_filters.CORRELATION]
        return rule_filters.of_correlation(correlation), Described(ULong(vendor.CORRELATION_FILTER), fields)
    if isinstance(sql, Mapping):
        expression = sql.get("expression")
        if not isinstance(expression, str) or not expression.strip():
            raise Refusal(Condition.INVALID_FIELD, f"the expression of an SQL filter is a text, not {expression!r:.80}")
        return rule_filters.of_sql(expression), Described(ULong(vendor.SQL_FILTER), [expression])
    if correlation is not None or sql is not None:
        raise Refusal(Condition.INVALID_FIELD, f"a filter is a map, not {correlation if sql is None else sql!r:.80}")
    if "false-filter" in description:
        return "FALSE", Described(ULong(vendor.FALSE_FILTER), [])
    return None, _TRUE


def _list_of(rules: list[tuple[str, Binding]]) -> NodeResponse:
    return NodeResponse(OK, "OK", {"rules": [_listed(name, binding) for name, binding in rules]})


def _listed(name: str, binding: Binding) -> dict[str, Any]:
    if binding.definition is not None:
        shown, _ = decode(base64.b64decode(binding.definition))
    elif _is_unconditional(binding):
        shown = _TRUE
    else:  # an operator's binding, which no filter of the vendor describes
        conditions = {"key": binding.key, "arguments": dict(binding.arguments), "selector": binding.selector}
        text = ", ".join(f"{name} {value}" for name, value in conditions.items() if value)
        shown = Described(ULong(vendor.SQL_FILTER), [f"a binding with {text or 'no-local'}"])
    action = Described(ULong(vendor.EMPTY_ACTION), [])
    return {"rule-description": Described(ULong(vendor.RULE), [shown, action, name])}
