"""RabbitMQ's policies, which set arguments of matching nodes. Penstock's policies are in the settings file, so an import applies
RabbitMQ's to the nodes of the file, and reports lines for the settings file."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from ... import errors
from .regular_expressions import patterns_of
from .steps import ImportStep, applied_note

MAX_EXPRESSION = 1000  # characters
#: RabbitMQ uses the smaller value of an argument and a policy.
_SMALLER = ("message-ttl", "max-length", "max-length-bytes", "delivery-limit", "expires")
_OF_QUEUES = {"queues": None, "all": None, "classic_queues": "classic", "quorum_queues": "quorum", "streams": "stream"}


@dataclass(frozen=True)
class RabbitPolicy:
    """A policy. An unusable `expression` matches no name."""

    name: str
    pattern: str
    expression: re.Pattern[str]
    apply_to: str
    priority: int
    definition: dict[str, Any]
    problem: str | None = None

    @classmethod
    def of(cls, table: dict[str, Any]) -> RabbitPolicy:
        priority, apply_to, pattern = table.get("priority", 0), table.get("apply-to", "all"), table["pattern"]
        if isinstance(priority, bool) or not isinstance(priority, int):
            raise errors.InvalidRequest(f"policy {table['name']!r:.80}: priority must be a whole number")
        problem, expression = None, re.compile(r"(?!)")
        try:
            if len(pattern) > MAX_EXPRESSION:
                raise re.error(f"it has more than {MAX_EXPRESSION} characters")
            expression = re.compile(pattern)
        except re.error as error:
            problem = f"its pattern cannot be used: {error}"
        return cls(table["name"], pattern, expression, str(apply_to), priority, table.get("definition", {}), problem)


def _first(policies: Sequence[RabbitPolicy], name: str) -> RabbitPolicy | None:
    """Only the match with the highest priority applies."""
    ordered = sorted(policies, key=lambda policy: -policy.priority)
    return next((policy for policy in ordered if policy.expression.search(name)), None)


def of_queue(policies: Sequence[RabbitPolicy], name: str, kind: str) -> RabbitPolicy | None:
    return _first([policy for policy in policies if _OF_QUEUES.get(policy.apply_to, "") in (None, kind)], name)


def of_exchange(policies: Sequence[RabbitPolicy], name: str) -> RabbitPolicy | None:
    return _first([policy for policy in policies if policy.apply_to in ("exchanges", "all")], name)


def merged(arguments: dict[str, Any], policy: RabbitPolicy | None) -> dict[str, Any]:
    """Return arguments without the prefix `x-`."""
    definition = {} if policy is None else policy.definition
    plain = {name.removeprefix("x-"): value for name, value in arguments.items()}
    values = {**definition, **plain}
    for name in _SMALLER:
        both = [source[name] for source in (definition, plain) if name in source]
        if len(both) == 2 and all(type(value) is int for value in both):
            values[name] = min(both)
    return values


def steps(policies: Sequence[RabbitPolicy], applied: Sequence[RabbitPolicy | None]) -> list[ImportStep]:
    """`applied`: by queue and exchange of the file."""
    counts = Counter(policy.name for policy in applied if policy is not None)
    return [ImportStep(f"policy {policy.name}", [_note(policy, counts[policy.name])]) for policy in policies]


def _note(policy: RabbitPolicy, count: int) -> str:
    if policy.problem is not None:
        return policy.problem
    patterns = patterns_of(policy.pattern)
    names = f", with pattern = {' or '.join(map(json.dumps, patterns[:5]))}" if patterns else ""
    return applied_note(count) + names
