"""Options of links, by the names that other brokers use. Our attach repeats the granted ones in the same places.

| option | where | names |
|---|---|---|
| a consumer's priority | property of the link | `priority` (Qpid Broker-J, ActiveMQ Artemis), `rabbitmq:priority` |
| exclusive consumer | property of the link, capability of its source | `exclusive` |
| a receiver that reports which deliveries its application has | property of the link | `penstock:reports-received` |
| immediate delivery or refusal | capability of the target | `immediate` |

A priority outside -128 to 127 counts as the nearest of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from ...amqp import Condition, Source, Target
from ...amqp.performatives import Attach
from ...amqp.types import Int, Symbol, Value
from ...messages.annotations import REPORTS
from ..conditions import Refusal
from ..loop.interest import PRIORITIES

_PRIORITY = ("priority", "rabbitmq:priority")
EXCLUSIVE, IMMEDIATE = "exclusive", "immediate"


class LinkOptions(NamedTuple):
    """Options of a receiver's link."""

    priority: int = 0
    exclusive: bool = False
    reports: bool = False

    def answered(self, attach: Attach) -> dict[str, Value]:
        """Return the granted options as properties of our attach."""
        properties: Mapping[str, Any] = attach.properties or {}
        answer: dict[str, Value] = {Symbol(name): Int(self.priority) for name in _PRIORITY if name in properties}
        if EXCLUSIVE in properties:
            answer[Symbol(EXCLUSIVE)] = self.exclusive
        if REPORTS in properties:
            answer[REPORTS] = self.reports
        return answer


def link_options_of(attach: Attach) -> LinkOptions:
    properties: Mapping[str, Any] = attach.properties or {}
    wanted = next((properties[name] for name in _PRIORITY if name in properties), 0)
    priority = min(max(_number(wanted), PRIORITIES.start), PRIORITIES.stop - 1)
    exclusive = properties.get(EXCLUSIVE, False)
    if not isinstance(exclusive, bool):
        raise Refusal(Condition.INVALID_FIELD, f"the link property 'exclusive' is a boolean, not {exclusive!r:.80}")
    source = attach.source
    exclusive = exclusive or (isinstance(source, Source) and EXCLUSIVE in source.capabilities)
    return LinkOptions(priority, exclusive, properties.get(REPORTS) is True)


def _number(value: object) -> int:
    """Read a number, which some clients send as text."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value):
        return int(value)
    raise Refusal(Condition.INVALID_FIELD, f"the link property 'priority' is a whole number, not {value!r:.80}")


def wants_immediate(target: object) -> bool:
    return isinstance(target, Target) and IMMEDIATE in target.capabilities
