"""Policies: options of queues and exchanges by name pattern, from `conf/`, and the nodes that a first use makes.

Only the resulting declarations are journaled.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ...errors import InvalidRequest
from ...patterns import matches
from . import exchange_options, options


@dataclass(frozen=True)
class Policy:
    """In `pattern`, each `*` stands for any text. `create`: the first use of a name makes a node of this `type`. `options` are
    defaults of declarations. Without a type, they are for all queues, and a first use makes a fifo queue."""

    pattern: str
    create: bool = False
    type: str | None = None
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def makes(self) -> str:
        return self.type or options.TYPES[0]

    @property
    def of_exchanges(self) -> bool:
        return self.makes in exchange_options.TYPES

    def check(self) -> None:
        known = (*options.TYPES, *exchange_options.TYPES)
        if self.makes not in known:
            raise InvalidRequest(f"type {self.makes!r:.80} is not known; known are {', '.join(known)}")
        options.check_names(self.options)
        (exchange_options if self.of_exchanges else options).checked(self.makes, self.options)


class Policies:
    """Policies in order: the first one that matches a name applies."""

    def __init__(self, policies: Sequence[Policy] = ()) -> None:
        self._policies = tuple(policies)

    def of(self, name: str) -> Policy | None:
        return next((policy for policy in self._policies if matches(policy.pattern, name)), None)

    def options_of(self, name: str, kind: str) -> Mapping[str, Any]:
        policy = self.of(name)
        applies = policy is not None and (kind == policy.type or (policy.type is None and kind in options.TYPES))
        return policy.options if policy is not None and applies else {}

    def maker_of(self, name: str) -> Policy | None:
        policy = self.of(name)
        return policy if policy is not None and policy.create else None


NO_POLICIES = Policies()
