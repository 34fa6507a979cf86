"""Bindings: what leads from an exchange to a queue, and how the ones that match a routing key are found.

*direct* matches the key as it is, *topic* by patterns, *headers* by application properties, *fanout* always. A binding may ask
for more: a selector, and that the message is not from one container (no-local).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, NamedTuple, Protocol

from .topics import Trie


@dataclass(frozen=True)
class Binding:
    """One way into a queue. Two that differ in anything are two bindings."""

    queue: str
    key: str = ""  # of a direct exchange; the pattern of a topic exchange
    arguments: Mapping[str, Any] = field(default_factory=dict)  # what a headers exchange looks for
    selector: str | None = None
    no_local: str | None = None  # the container whose own messages are not meant

    @property
    def looks_inside(self) -> bool:
        """True where a message's content decides."""
        return self.selector is not None or bool(self.arguments)

    @property
    def identity(self) -> tuple[Any, ...]:
        """Equal where two bindings say the same: 1 and "1" are not the same here, though they match the same."""
        arguments = tuple(sorted((name, type(value).__name__, value) for name, value in self.arguments.items()))
        return self.queue, self.key, arguments, self.selector, self.no_local

    def to_json(self) -> dict[str, Any]:
        """Return the form of snapshots: what is not the default."""
        return {name: value for name, value in asdict(self).items() if value}


class Targets(NamedTuple):
    """Queues and exchanges to which one routing key leads."""

    queues: tuple[str, ...]  # whatever the message says: each queue once
    particular: tuple[int, ...]  # bindings that ask for more, to other queues than those


NOWHERE = Targets((), ())


class Matcher(Protocol):
    """Numbered keys or patterns, and which of them match a key."""

    def add(self, key: str, number: int) -> None:
        """Add a binding by its number."""

    def remove(self, key: str, number: int) -> None:
        """Remove a binding."""

    def match(self, key: str) -> Iterable[int]:
        """Return the numbers of the bindings that this key matches."""


class _All:
    """Every binding, whatever the key."""

    def __init__(self) -> None:
        self._numbers: dict[int, None] = {}

    def add(self, key: str, number: int) -> None:
        self._numbers[number] = None

    def remove(self, key: str, number: int) -> None:
        del self._numbers[number]

    def match(self, key: str) -> Iterable[int]:
        return self._numbers


class _Equal:
    """The bindings of exactly this key."""

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
