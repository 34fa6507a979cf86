"""A compiled selector, and its evaluation on a payload."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from . import parser, syntax
from .lexer import is_blank
from .lookalikes import Presence, lookalikes
from .syntax import Identifier, Node

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from .operands import Operand

#: Rows evaluated together: their octets then stay in the processor's cache from step to step.
CHUNK_ROWS = 1 << 15
#: Column of a field, if it is not of the same name.
_COLUMNS = {None: "properties", "deliveryMode": "durable"}
_COMPILED = 256  # selectors that are kept compiled


@dataclass(frozen=True)
class Selector:
    """A compiled selector. `text` is canonical: two selectors with the same meaning in the same order are equal, however
    written. `lookalikes`: names that may be meant as fields (see the module of that name).
    """

    text: str
    identifiers: tuple[Identifier, ...]
    tree: Node
    lookalikes: tuple[str, ...] = ()

    def columns(self) -> frozenset[str]:
        """Name the columns of a stored payload, of either form, that the selector looks at."""
        return frozenset({_COLUMNS.get(one.field, one.field) or "" for one in self.identifiers} | {"message"})

    def needed_columns(self, payload: pa.RecordBatch) -> pa.RecordBatch:
        """Return the payload with the columns that the selector needs, at least one, so that there are rows."""
        names, wanted = payload.schema.names, self.columns()
        return payload.select([name for name in names if name in wanted] or names[:1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=_COMPILED)
def parse(text: str) -> Selector:
    """Compile a selector. Raises InvalidSelector: position, what was found there, and what is allowed."""
    tree = parser.parse(text)
    identifiers = dict.fromkeys(node for node, _ in syntax.walk(tree) if isinstance(node, Identifier))
    return Selector(syntax.render(tree), tuple(identifiers), tree, lookalikes(identifiers))


def parse_optional(text: str | None) -> Selector | None:
    """Compile a selector; None for no text and for a blank one, which JMS takes for no selector. Raises InvalidSelector."""
    return None if text is None or is_blank(text) else parse(text)


def presence_of(selector: Selector | None) -> Presence | None:
    """Return what `matches` fills for a selector; None for one without lookalikes, which then costs nothing."""
    return Presence(selector.lookalikes) if selector is not None and selector.lookalikes else None


def hints_of(selector: Selector | None) -> list[str]:
    """Return the hints for a selector whose messages are not compared yet."""
    presence = presence_of(selector)
    return [] if presence is None else presence.hints()


def matches(selector: Selector, payload: pa.RecordBatch, presence: Presence | None = None) -> npt.NDArray[np.bool_]:
    """Return which rows of a stored payload, of either form, the selector matches: bool of shape (rows,).

    A row with an unknown result does not match, nor does an encoded message that is malformed. Nothing is raised for the content
    of a payload. `presence` is told which lookalikes the messages have.
    """
    import numpy as np

    found = np.zeros(payload.num_rows, np.bool_)
    evaluate = _encoded if "message" in payload.schema.names else _columnar
    with np.errstate(all="ignore"):  # NaN and infinity are values like others here
        for first in range(0, payload.num_rows, CHUNK_ROWS):
            part = payload.slice(first, CHUNK_ROWS)
            found[first : first + part.num_rows] = evaluate(selector, part, presence)
    return found


def _columnar(selector: Selector, payload: pa.RecordBatch, presence: Presence | None) -> Any:
    from .columnar import columnar

    return _true(selector, {name: columnar(payload, name) for name in selector.identifiers}, presence)


def _encoded(selector: Selector, payload: pa.RecordBatch, presence: Presence | None) -> Any:
    import numpy as np
    import pyarrow as pa

    from . import encoded, single

    columns, odd = encoded.encoded(payload, selector.identifiers)
    found = np.broadcast_to(_true(selector, columns, presence), payload.num_rows) & ~odd
    rows = np.flatnonzero(odd)
    if len(rows):
        columns, accepted = single.decode_each(payload.take(pa.array(rows)), selector.identifiers)
        found[rows[accepted]] = _true(selector, columns, presence)
    return found


def _true(selector: Selector, columns: dict[Identifier, Operand], presence: Presence | None) -> Any:
    from .evaluate import truth

    if presence is not None:
        presence.note(columns)
    return truth(selector.tree, columns).true
