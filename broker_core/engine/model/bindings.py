"""Bindings, which lead from an exchange to a queue, and the search for matches of a routing key.

A *direct* exchange compares keys, *topic* matches patterns, *headers* compares application properties, *fanout* matches all.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

from .topics import Trie


@dataclass(frozen=True)
class Binding:
    """Two bindings that differ in any field are two bindings."""

    queue: str
    key: str = ""  # of a direct exchange; pattern of a topic exchange
    arguments: Mapping[str, Any] = field(default_factory=dict)  # of a headers exchange
    selector: str | None = None
    no_local: str | None = None  # AMQP container whose messages are left out
    name: str | None = None  # unique for a queue and an exchange
    definition: str | None = None  # the condition in the notation of the client that named it

    @property
    def looks_inside(self) -> bool:
        return self.selector is not None or bool(self.arguments)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal for equal bindings. 1 and "1" differ, although they match the same header."""
        arguments = tuple(sorted((name, type(value).__name__, value) for name, value in self.arguments.items()))
        return self.queue, self.key, arguments, self.selector, self.no_local, self.name

    def to_json(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if value}


class Targets(NamedTuple):
    """The queues of a routing key."""

    queues: tuple[str, ...]  # for any content of a message
    particular: tuple[int, ...]  # numbers of bindings to other queues that depend on the content


NOWHERE = Targets((), ())


class Matcher(Protocol):
    """Numbered keys or patterns."""

    def add(self, key: str, number: int) -> None: ...

    def remove(self, key: str, number: int) -> None: ...

    def match(self, key: str) -> Iterable[int]: ...


class _All:
    """Every key matches."""

    def __init__(self) -> None:
        self._numbers: dict[int, None] = {}

    def add(self, key: str, number: int) -> None:
        self._numbers[number] = None

    def remove(self, key: str, number: int) -> None:
        del self._numbers[number]

    def match(self, key: str) -> Iterable[int]:
        return self._numbers


class _Equal:
    """Equal keys match."""

    def __init__(self) -> None:
        self._numbers: dict[str, dict[int, None]] = {}

    def add(self, key: str, number: int) -> None:
        self._numbers.setdefault(key, {})[number] = None

    def remove(self, key: str, number: int) -> None:
        del self._numbers[key][number]
        if not self._numbers[key]:
            del self._numbers[key]

    def match(self, key: str) -> Iterable[int]:
        return self._numbers.get(key, ())


MATCHERS: dict[str, Callable[[], Matcher]] = {"direct": _Equal, "fanout": _All, "topic": Trie, "headers": _All}
