"""A compiled selector, and its evaluation on a payload."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from . import parser, syntax
from .lexer import is_blank
from .lookalikes import Presence, lookalikes
from .names import Identifier
from .syntax import Node

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from .operands import Operand

#: Rows evaluated together, so that their bytes stay in the processor's cache.
CHUNK_ROWS = 1 << 15
#: Column of a field, if its name is different.
_COLUMNS = {None: "properties", "deliveryMode": "durable"}
_COMPILED = 256  # compiled selectors in the cache


@dataclass(frozen=True)
class Selector:
    """`text` is canonical: selectors with the same meaning in the same order are equal."""

    text: str
    identifiers: tuple[Identifier, ...]
    tree: Node
    lookalikes: tuple[str, ...] = ()

    def columns(self) -> frozenset[str]:
        """Return the needed columns of a stored payload of either form."""
        return frozenset({_COLUMNS.get(name.field, name.field) or "" for name in self.identifiers} | {"message"})

    def needed_columns(self, payload: pa.RecordBatch) -> pa.RecordBatch:
        """At least one column remains, for the number of rows."""
        names, wanted = payload.schema.names, self.columns()
        return payload.select([name for name in names if name in wanted] or names[:1])

    def __eq__(self, value: object) -> bool:
        return isinstance(value, Selector) and self.text == value.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=_COMPILED)
def parse(text: str) -> Selector:
    tree = parser.parse(text)
    identifiers = dict.fromkeys(node for node, _ in syntax.walk(tree) if isinstance(node, Identifier))
    return Selector(syntax.render(tree), tuple(identifiers), tree, lookalikes(identifiers))


def parse_optional(text: str | None) -> Selector | None:
    """A blank text means no selector in JMS."""
    return None if text is None or is_blank(text) else parse(text)


def presence_of(selector: Selector | None) -> Presence | None:
    return Presence(selector.lookalikes) if selector is not None and selector.lookalikes else None


def hints_of(selector: Selector | None) -> list[str]:
    """Return hints before messages are compared."""
    presence = presence_of(selector)
    return [] if presence is None else presence.hints()


def matches(selector: Selector, payload: pa.RecordBatch, presence: Presence | None = None) -> npt.NDArray[np.bool_]:
    """Return the mask of matching rows of a stored payload, of either form.

    An unknown result does not match, nor does a malformed message. The content of a payload raises nothing.
    """
    import numpy as np

    matching = np.zeros(payload.num_rows, np.bool_)
    evaluate = _encoded if "message" in payload.schema.names else _columnar
    with np.errstate(all="ignore"):  # NaN and infinity are ordinary values
        for first in range(0, payload.num_rows, CHUNK_ROWS):
            part = payload.slice(first, CHUNK_ROWS)
            matching[first : first + part.num_rows] = evaluate(selector, part, presence)
    return matching


def _columnar(selector: Selector, payload: pa.RecordBatch, presence: Presence | None) -> Any:
    from .column_operands import columnar

    return _true(selector, {name: columnar(payload, name) for name in selector.identifiers}, presence)


def _encoded(selector: Selector, payload: pa.RecordBatch, presence: Presence | None) -> Any:
    import numpy as np
    import pyarrow as pa

    from . import decoded_operands, encoded_operands

    columns, odd = encoded_operands.encoded(payload, selector.identifiers)
    matching = np.broadcast_to(_true(selector, columns, presence), payload.num_rows) & ~odd
    rows = np.flatnonzero(odd)
    if len(rows):
        columns, accepted = decoded_operands.decode_each(payload.take(pa.array(rows)), selector.identifiers)
        matching[rows[accepted]] = _true(selector, columns, presence)
    return matching


def _true(selector: Selector, columns: dict[Identifier, Operand], presence: Presence | None) -> Any:
    from .evaluation import truth

    if presence is not None:
        presence.note(columns)
    return truth(selector.tree, columns).true
