"""The filters of a source (3.5.8): JMS's selector and no-local.

The descriptor of a filter's value identifies it; some clients use the key instead. The answer is kept as long as the link, so it
contains only a key, a descriptor and a selector of the peer.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from ...amqp import Condition, Source
from ...amqp.types import Described, Symbol, Value
from ...selectors import Selector, parse_optional
from ..conditions import Refusal

SELECTOR = ("apache.org:selector-filter:string", 0x0000468C00000004)
NO_LOCAL = ("apache.org:no-local-filter:list", 0x0000468C00000003)

MAX_KEY = 255  # characters of the key of a known filter: each link keeps its own; the longest in use have 32


class Filters(NamedTuple):
    """Granted filters, and the filter-set of our answer."""

    selector: Selector | None = None
    no_local: bool = False
    answered: Mapping[str, Value] | None = None

    def of_queue(self) -> Filters:
        """Leave out no-local, which JMS does not define for a queue."""
        filters = {key: value for key, value in (self.answered or {}).items() if _kind(key, value) not in NO_LOCAL}
        return Filters(self.selector, answered=filters or None)


def _kind(key: str, value: Value) -> object:
    return value.descriptor if isinstance(value, Described) else key


def filters_of(source: Source) -> Filters:
    """Read the filters of a source. A blank selector is granted, and filters nothing. Raises Refusal, InvalidRequest."""
    selector, selects, no_local = None, False, False
    answered: dict[str, Value] = {}
    for key, value in (source.filter or {}).items():
        kind = _kind(key, value)
        if kind not in SELECTOR + NO_LOCAL:
            continue
        if len(key) > MAX_KEY:
            text = f"the key of a filter has {len(key):,} characters; at most {MAX_KEY} are allowed"
            raise Refusal(Condition.INVALID_FIELD, text)
        if kind in SELECTOR:
            if selects:
                raise Refusal(Condition.INVALID_FIELD, "a link has one selector: join the two with AND")
            text = value.value if isinstance(value, Described) else value
            if not isinstance(text, str):
                raise Refusal(Condition.INVALID_FIELD, f"a selector is a string, not {text!r:.80}")
            selector, selects = parse_optional(text), True
            answered[key] = Described(value.descriptor, text) if isinstance(value, Described) else text
        elif not no_local:  # a second one changes nothing
            no_local = True
            answered[key] = Described(value.descriptor if isinstance(value, Described) else Symbol(NO_LOCAL[0]), [])
    return Filters(selector, no_local, answered or None)


def not_granted(asked: Source, granted: Source) -> list[str]:
    left = [(key, value) for key, value in (asked.filter or {}).items() if key not in (granted.filter or {})]
    return [f"{key:.80} ({_kind(key, value)!s:.80})" if isinstance(value, Described) else f"{key:.80}" for key, value in left]


def filter_set(selector: str | None, no_local: bool) -> Mapping[str, Value] | None:
    filters: dict[str, Value] = {}
    if selector is not None:
        filters[Symbol("jms-selector")] = Described(Symbol(SELECTOR[0]), selector)
    if no_local:
        filters[Symbol("no-local")] = Described(Symbol(NO_LOCAL[0]), [])
    return filters or None
