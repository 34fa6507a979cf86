"""RabbitMQ's queues. docs/queues.md has the table of their arguments."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from ...engine.model.bindings import MATCHERS
from . import rabbitmq_policies
from .queues import PlannedQueue, break_cycles
from .rabbitmq_policies import RabbitPolicy
from .steps import ImportStep

_NUMBERS = {
    "message-ttl": "messageTtl",
    "max-length": "maxMessages",
    "max-length-bytes": "maxBytes",
    "delivery-limit": "maxAttempts",
}
_OVERFLOW = {"drop-head": "ring", "reject-publish": "reject", "reject-publish-dlx": "reject"}
#: Arguments that change neither order nor fate of a message: replicas, memory, storage.
_WITHOUT_EFFECT = re.compile(
    r"queue-(mode|version|type|leader-locator|master-locator)|quorum-.*|ha-.*|initial-cluster-size|max-in-memory-.*"
    r"|dead-letter-strategy|target-group-size"
)
_KEPT = {"max-age": "an age limit of a stream", "expires": "Penstock does not delete idle queues"}


class Routes:
    """Bindings, to find the queue of an exchange's dead letters. `kinds`: types of exchanges."""

    def __init__(self, kinds: Mapping[str, str], bindings: Sequence[dict[str, Any]]) -> None:
        self._bindings: dict[str, list[dict[str, Any]]] = {exchange: [] for exchange in kinds}
        self._matchers = {exchange: MATCHERS.get(kind, MATCHERS["fanout"])() for exchange, kind in kinds.items()}
        for table in bindings:
            bound = self._bindings.get(table["source"])
            if bound is not None:
                self._matchers[table["source"]].add(table["routing_key"], len(bound))
                bound.append(table)

    def queue_of(self, exchange: str, key: str | None, queue: str) -> tuple[str | None, str]:
        """Return the only queue that dead letters of `queue` reach, or a reason."""
        if exchange == "":
            return queue if key is None else key, ""
        bound = self._bindings.get(exchange)
        if bound is None:
            return None, f"the file has no exchange {exchange!r:.80}"
        if any(table["destination_type"] != "queue" for table in bound):
            return None, f"exchange {exchange!r:.80} is bound to an exchange"
        if key is not None:
            bound = [bound[number] for number in self._matchers[exchange].match(key)]
        targets = sorted({table["destination"] for table in bound})
        if len(targets) != 1:
            many = f"several queues ({', '.join(targets[:5])}), and Penstock has one dead-letter queue"
            return None, f"exchange {exchange!r:.80} leads to {many if targets else 'no queue'}"
        return targets[0], ""


def steps(queues: Sequence[RabbitQueue]) -> list[ImportStep]:
    break_cycles(queues)
    return [queue.step() for queue in queues]


class RabbitQueue(PlannedQueue):
    """A queue of the file. `break_cycles` completes it."""

    def __init__(self, table: dict[str, Any], policies: Sequence[RabbitPolicy], routes: Routes) -> None:
        super().__init__(table["name"])
        arguments = table.get("arguments", {})
        kind = arguments.get("x-queue-type", table.get("type", "classic"))
        self.is_stream = kind == "stream"
        self.policy = rabbitmq_policies.of_queue(policies, self.name, str(kind))
        values = rabbitmq_policies.merged(arguments, self.policy)
        self._limits(values)
        self._dead_letters(values, routes)
        if values.pop("single-active-consumer", False) is True:
            self.options["consumers"] = "single"
        if table.get("auto_delete") is True:
            self.options["lifetime"] = "unused"
        for name in values:
            if not _WITHOUT_EFFECT.fullmatch(name):
                self.notes.append(f"{name}: {_KEPT.get(name, 'no counterpart')}")

    def _limits(self, values: dict[str, Any]) -> None:
        for name, option in _NUMBERS.items():
            value = values.pop(name, None)
            if name == "delivery-limit" and value == -1:
                self.options[option] = 0  # no limit
            elif value is not None and (type(value) is not int or value <= 0):
                self.notes.append(f"{name}: {value!r:.80} has no counterpart")
            elif value is not None:
                self.options[option] = value
        overflow = values.pop("overflow", "drop-head")
        if "maxMessages" in self.options or "maxBytes" in self.options:
            self.options["overflow"] = _OVERFLOW.get(overflow, "ring")
        most = values.pop("max-priority", 0)
        if type(most) is not int or most < 0:
            self.notes.append(f"max-priority: {most!r:.80} has no counterpart")
        elif most > 0:
            self.type = "priority"
            if most > 9:
                self.notes.append("max-priority: priorities above 9 count as 9")

    def _dead_letters(self, values: dict[str, Any], routes: Routes) -> None:
        exchange, key = values.pop("dead-letter-exchange", None), values.pop("dead-letter-routing-key", None)
        if exchange is None:
            return
        target, reason = routes.queue_of(str(exchange), None if key is None else str(key), self.name)
        if target == self.name:
            target, reason = None, "they would return to the same queue"
        if target is None:
            self.keep_dead_letters(reason)
            return
        self.options |= {"deadLetterQueue": target, "expired": "deadLetter"}
        if self.options.get("overflow") == "ring":
            self.notes.append("overflow: dropped messages do not become dead letters")

    def step(self) -> ImportStep:
        if self.is_stream:
            return ImportStep(f"queue {self.name}", ["a stream; a queue's archive can be read again instead (docs/spark.md)"])
        return super().step()
