"""Routing of a batch of messages to queues."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from ..columns.attributes import Coded
from ..columns.rowset import as_array, row_count
from ..columns.series import Ints, Rows
from .bindings import Binding, Targets
from .exchange import Exchange, chain
from .options import Rules, Wants

if TYPE_CHECKING:
    from .queue import Queue

NO_ROWS = slice(0, 0)


@dataclass(frozen=True)
class Examined:
    """By number of a binding, the messages of a batch that it matches by their content. A missing binding has no matches."""

    version: int
    rows: Mapping[int, Rows]


class RoutedPart(NamedTuple):
    """Messages of a batch, and the queues that get exactly these."""

    queues: tuple[str, ...]
    rows: Rows  # a slice, or ascending indexes


class RoutingResult(NamedTuple):
    """Each queue is in one part."""

    parts: list[RoutedPart]
    refused: Rows  # without a matching binding
    dropped: int


Numbered = tuple[int, Binding]
Asks = tuple[int, Wants]  # the values that a queue needs: see `asks`


def asks(rules: Rules) -> Asks:
    """Queues with equal results need the same attributes."""
    return rules.message_ttl, rules.wants


class Inside(NamedTuple):
    """Bindings of one exchange that depend on the content of messages."""

    exchange: str
    version: int
    bindings: list[Numbered]


class Plan(NamedTuple):
    """Content of a batch that must be read before it is routed."""

    inside: list[Inside]
    rules: Mapping[Asks, Rules]


def plan(exchanges: Mapping[str, Exchange], queues: Mapping[str, Queue], name: str, keys: str | Coded) -> Plan:
    rules: dict[Asks, Rules] = {}
    for exchange in chain(exchanges, name):
        for targets in {exchange.targets(key) for key in _distinct(keys)}:
            reached = (*targets.queues, *(exchange.bindings[number].queue for number in targets.particular))
            rules.update((asks(queues[queue].rules), queues[queue].rules) for queue in reached)
        last = queues.get(exchange.alternate or "")
        if last is not None:
            rules[asks(last.rules)] = last.rules
    return Plan(particulars(exchanges, name, keys), rules)


class Stale(Exception):
    """Bindings have changed since the batch was examined: examine it again."""


def particulars(exchanges: Mapping[str, Exchange], name: str, keys: str | Coded) -> list[Inside]:
    """Exchanges without bindings that depend on the content are left out."""
    inside_by_exchange = []
    for exchange in chain(exchanges, name):
        numbers = {number for key in _distinct(keys) for number in exchange.targets(key).particular}
        inside = [(number, exchange.bindings[number]) for number in sorted(numbers) if exchange.bindings[number].looks_inside]
        if inside:
            inside_by_exchange.append(Inside(exchange.name, exchange.version, inside))
    return inside_by_exchange


class Sending(NamedTuple):
    """A batch that is sent to an exchange."""

    messages: int
    keys: str | Coded = ""  # routing keys: one for all messages, or one for each
    examined: Mapping[str, Examined] = MappingProxyType({})
    container: str | None = None


def route(exchanges: Mapping[str, Exchange], queues: Mapping[str, object], name: str, sending: Sending) -> RoutingResult:
    """Raises Stale if `sending.examined` is not sufficient for a binding."""
    routing = _Routing(sending)
    rows: Rows = slice(0, sending.messages)
    last: Exchange | None = None
    for last in chain(exchanges, name):
        rows = routing.through(last, rows)
        if not row_count(rows):
            return RoutingResult(routing.parts(), NO_ROWS, 0)
        if last.unroutable == "drop":
            return RoutingResult(routing.parts(), NO_ROWS, row_count(rows))
    if last is not None and last.alternate in queues:
        assert last.alternate is not None
        routing.give((last.alternate,), rows)
        rows = NO_ROWS
    return RoutingResult(routing.parts(), rows, 0)


def _distinct(keys: str | Coded) -> Iterable[str]:
    return (keys,) if isinstance(keys, str) else ("", *keys.names)


class _Routing:
    """The routing of one batch."""

    def __init__(self, sending: Sending) -> None:
        self._count, self._keys, self._examined, self._container = sending
        self._given: list[RoutedPart] = []

    def give(self, queues: tuple[str, ...], rows: Rows) -> None:
        if queues and row_count(rows):
            self._given.append(RoutedPart(queues, rows))

    def parts(self) -> list[RoutedPart]:
        """A message that reaches a queue in several ways is appended once."""
        parts = self._given
        if sum(len(part.queues) for part in parts) == len({queue for part in parts for queue in part.queues}):
            return parts
        by_queue: dict[str, list[Rows]] = {}
        for part in parts:
            for queue in part.queues:
                by_queue.setdefault(queue, []).append(part.rows)
        together: dict[tuple[int, ...], tuple[list[str], list[Rows]]] = {}  # queues with the same messages
        for queue, several in by_queue.items():
            together.setdefault(tuple(map(id, several)), ([], several))[0].append(queue)
        return [RoutedPart(tuple(queues), _union(several, self._count)) for queues, several in together.values()]

    def through(self, exchange: Exchange, rows: Rows) -> Rows:
        """Return the messages that no binding matches."""
        placed = np.zeros(self._count, np.bool_)
        for targets, mine in self._by_targets(exchange, rows):
            if targets.queues:
                placed[mine] = True
            self.give(targets.queues, mine)
            for number in targets.particular:
                binding = exchange.bindings[number]
                passed = self._passed(exchange, number, binding, mine)
                placed[passed] = True
                self.give((binding.queue,), passed)
        left = as_array(rows)[~placed[rows]]
        return rows if len(left) == row_count(rows) else left

    def _by_targets(self, exchange: Exchange, rows: Rows) -> Iterable[tuple[Targets, Rows]]:
        keys = self._keys
        if isinstance(keys, str) or not exchange.by_key:
            yield exchange.targets(keys if isinstance(keys, str) else ""), rows
            return
        by_code = [exchange.targets(key) for key in _distinct(keys)]
        kinds = {targets: number for number, targets in enumerate(dict.fromkeys(by_code))}
        kind = np.array([kinds[targets] for targets in by_code])[keys.codes[rows]]
        order = np.argsort(kind, kind="stable")
        ends = np.cumsum(np.bincount(kind, minlength=len(kinds)))
        sorted_rows = as_array(rows)[order]
        for targets, begin, end in zip(kinds, [0, *ends[:-1].tolist()], ends.tolist(), strict=True):
            if begin < end:
                yield targets, rows if end - begin == len(sorted_rows) else sorted_rows[begin:end]

    def _passed(self, exchange: Exchange, number: int, binding: Binding, rows: Rows) -> Rows:
        if binding.no_local is not None and binding.no_local == self._container:
            return NO_ROWS
        if not binding.looks_inside:
            return rows
        examined = self._examined.get(exchange.name)
        if examined is None or examined.version != exchange.version:
            raise Stale(exchange.name)
        return _both(examined.rows.get(number, NO_ROWS), rows, self._count)


def _both(first: Rows, second: Rows, count: int) -> Rows:
    for rows, others in ((first, second), (second, first)):
        if isinstance(rows, slice) and rows == slice(0, count):
            return others
    both: Ints = np.intersect1d(as_array(first), as_array(second), assume_unique=True)
    return both


def _union(several: list[Rows], count: int) -> Rows:
    rows = several[0] if len(several) == 1 else np.unique(np.concatenate([as_array(rows) for rows in several]))
    return slice(0, count) if row_count(rows) == count else rows
