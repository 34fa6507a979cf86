"""Options that an attach may ask for beside its node, by the names that brokers have for it; the core specification has none.

| option | where | names |
|---|---|---|
| a consumer's priority | property of the link | `priority` (Qpid Broker-J, ActiveMQ Artemis), `rabbitmq:priority` |
| to be the only consumer | property of the link, capability of its source | `exclusive` |
| delivery at once or not at all | capability of the target | `immediate` |

Our answer to the attach names what holds, in the same places. A priority beyond -128 to 127 is as the nearest of these.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NamedTuple

from ...amqp import Condition, Source, Target
from ...amqp.types import Int, Symbol
from ..loop.interest import PRIORITIES
from .conditions import Refusal

if TYPE_CHECKING:
    from ...amqp.performatives import Attach
    from ...amqp.types import Value

_PRIORITY = ("priority", "rabbitmq:priority")
EXCLUSIVE, IMMEDIATE = "exclusive", "immediate"


class LinkOptions(NamedTuple):
    """The options of a link that a client receives on."""

    priority: int = 0
    exclusive: bool = False

    def answered(self, attach: Attach) -> dict[str, Value]:
        """Form the properties of our attach: those of these options that it had."""
        given: Mapping[str, Any] = attach.properties or {}
        answer: dict[str, Value] = {Symbol(name): Int(self.priority) for name in _PRIORITY if name in given}
        if EXCLUSIVE in given:
            answer[Symbol(EXCLUSIVE)] = self.exclusive
        return answer


def link_options_of(attach: Attach) -> LinkOptions:
    """Read the options of an attach. Raises Refusal where one is there and says nothing that can be granted."""
    given: Mapping[str, Any] = attach.properties or {}
    wanted = next((given[name] for name in _PRIORITY if name in given), 0)
    priority = min(max(_number(wanted), PRIORITIES.start), PRIORITIES.stop - 1)
    exclusive = given.get(EXCLUSIVE, False)
    if not isinstance(exclusive, bool):
        raise Refusal(Condition.INVALID_FIELD, f"the link property 'exclusive' is a boolean, not {exclusive!r:.80}")
    source = attach.source
    return LinkOptions(priority, exclusive or (isinstance(source, Source) and EXCLUSIVE in source.capabilities))


def _number(value: object) -> int:
    """Read a number, also as text, which some clients' options are."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and re.fullmatch(r"-?[0-9]{1,9}", value):
        return int(value)
    raise Refusal(Condition.INVALID_FIELD, f"the link property 'priority' is a whole number, not {value!r:.80}")


class Immediate(NamedTuple):
    """A queue for messages that are to be delivered at once or not at all."""

    queue: str


def wants_immediate(target: object) -> bool:
    """Say whether what is sent there is to be delivered at once or not at all."""
    return isinstance(target, Target) and IMMEDIATE in target.capabilities
