"""Exchanges: the rules by which a message finds its queues.

A message is appended once to each queue whose bindings match it. The default exchange is not part of this module.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from ..columns.counters import add_to
from ..columns.limits import MAX_KEY, MAX_ROUTE_CACHE
from ..columns.losses import Losses
from .bindings import MATCHERS, NOWHERE, Binding, Targets


class Exchange:
    """An exchange and its bindings."""

    def __init__(self, name: str, kind: str, options: dict[str, Any], user: str | None = None) -> None:
        # persisted
        self.name = name
        self.kind = kind
        self.options = options
        self.user = user  # whose link made it; None: it was declared by name
        self.bindings: dict[int, Binding] = {}
        self.next_number = 0
        # derived
        self.version = 0  # of the bindings; unique until the broker ends
        self.messages = 0  # since the broker started, lost ones included
        self.losses = Losses()
        self._matcher = MATCHERS[kind]()
        self._no_local = 0
        self._numbers: dict[tuple[Any, ...], int] = {}
        self._known: dict[str, Targets] = {}

    @property
    def unroutable(self) -> str:
        default = "alternate" if self.alternate else "refuse"
        return str(self.options.get("unroutable", default))

    @property
    def alternate(self) -> str | None:
        return self.options.get("alternate")

    @property
    def lifetime(self) -> str:
        return str(self.options.get("lifetime", "permanent"))

    @property
    def by_key(self) -> bool:
        return self.kind in ("direct", "topic")

    @property
    def minds_senders(self) -> bool:
        return self._no_local > 0

    def bind(self, binding: Binding, number: int) -> None:
        self.bindings[number] = binding
        self._no_local += binding.no_local is not None
        self.next_number = max(self.next_number, number + 1)
        self._numbers[binding.identity] = number
        self._matcher.add(binding.key, number)
        self._known = {}

    def unbind(self, numbers: Collection[int]) -> None:
        for number in numbers:
            binding = self.bindings.pop(number)
            self._no_local -= binding.no_local is not None
            del self._numbers[binding.identity]
            self._matcher.remove(binding.key, number)
        self._known = {}

    def number_of(self, binding: Binding) -> int | None:
        return self._numbers.get(binding.identity)

    def numbers_of(self, queue: str, key: str | None) -> list[int]:
        bindings = self.bindings.items()
        return [number for number, binding in bindings if binding.queue == queue and (key is None or binding.key == key)]

    def bindings_of(self, queue: str) -> dict[int, Binding]:
        return {number: self.bindings[number] for number in self.numbers_of(queue, None)}

    def targets(self, key: str) -> Targets:
        if not self.by_key:
            key = ""
        elif len(key) > MAX_KEY:  # not even `#` matches, which bounds the cost of a key
            return NOWHERE
        targets = self._known.get(key)
        if targets is None:
            targets = self._targets(self._matcher.match(key))
            if len(self._known) >= MAX_ROUTE_CACHE:
                self._known = {}
            self._known[key] = targets
        return targets

    def _targets(self, numbers: Iterable[int]) -> Targets:
        matched = [(number, self.bindings[number]) for number in numbers]
        plain = dict.fromkeys(b.queue for _, b in matched if b.no_local is None and not b.looks_inside)
        return Targets(tuple(plain), tuple(n for n, b in matched if b.queue not in plain))

    def to_json(self) -> dict[str, Any]:
        bindings = [[number, binding.to_json()] for number, binding in self.bindings.items()]
        user = {} if self.user is None else {"user": self.user}
        fields = {"name": self.name, "type": self.kind, "options": self.options, **user}
        return {**fields, "next": self.next_number, "bindings": bindings}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> Exchange:
        exchange = cls(data["name"], data["type"], data["options"], data.get("user"))
        for number, binding in data["bindings"]:
            exchange.bind(Binding(**binding), number)
        exchange.next_number = data["next"]
        return exchange


def chain(exchanges: Mapping[str, Exchange], name: str) -> Iterator[Exchange]:
    """Yield the exchange and its alternates, each once."""
    seen: set[str] = set()
    following: str | None = name
    while following in exchanges and following not in seen:
        assert following is not None
        seen.add(following)
        yield exchanges[following]
        following = exchanges[following].alternate


class LifetimeLink(NamedTuple):
    """A link that the lifetime of a queue or an exchange depends on."""

    makes: bool  # the node was made for this link
    owner: str | None  # the connection that alone may receive from the node


class Exchanges:
    """All exchanges."""

    def __init__(self) -> None:
        self.by_name: dict[str, Exchange] = {}  # persisted
        # derived
        self._changes = 0
        self._bound: dict[str, dict[str, int]] = {}  # queue → exchange → number of bindings

    def add(self, exchange: Exchange) -> None:
        self.by_name[exchange.name] = exchange
        self._changed(exchange)
        for binding in exchange.bindings.values():
            self._count(exchange.name, binding.queue, 1)

    def delete(self, name: str) -> None:
        exchange = self.by_name.pop(name)
        for binding in exchange.bindings.values():
            self._count(name, binding.queue, -1)

    def bind(self, name: str, binding: Binding, number: int) -> None:
        exchange = self.by_name[name]
        exchange.bind(binding, number)
        self._changed(exchange)
        self._count(name, binding.queue, 1)

    def unbind(self, name: str, numbers: Collection[int]) -> None:
        exchange = self.by_name[name]
        for number in numbers:
            self._count(name, exchange.bindings[number].queue, -1)
        exchange.unbind(numbers)
        self._changed(exchange)

    def leading_to(self, queue: str) -> Collection[str]:
        return self._bound.get(queue, {}).keys()

    def forget_queue(self, queue: str) -> None:
        for name in list(self.leading_to(queue)):
            self.unbind(name, self.by_name[name].numbers_of(queue, None))

    def _changed(self, exchange: Exchange) -> None:
        self._changes += 1
        exchange.version = self._changes

    def _count(self, exchange: str, queue: str, change: int) -> None:
        counts = self._bound.setdefault(queue, {})
        add_to(counts, exchange, change)
        if not counts:
            del self._bound[queue]
