"""A compiled selector, and which messages it matches."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from penstock.broker_core.selectors import parser, syntax
from penstock.broker_core.selectors.syntax import Identifier, Node

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    import pyarrow as pa

    from penstock.broker_core.selectors.operands import Operand

#: Rows that are evaluated together: their octets then stay near the processor while each step passes over them.
CHUNK_ROWS = 1 << 15
#: Where it is not the column of the field's name.
_COLUMNS = {None: "properties", "deliveryMode": "durable"}
_COMPILED = 256  # selectors that are kept compiled


@dataclass(frozen=True)
class Selector:
    """`text` is canonical: selectors that say the same in the same order, however they are written, are equal by it."""

    text: str
    identifiers: tuple[Identifier, ...]
    tree: Node

    def looked_at(self, payload: pa.RecordBatch) -> pa.RecordBatch:
        """The payload's columns that the selector looks at; always one at least, so that there are rows."""
        names = payload.schema.names
        wanted = {_COLUMNS.get(one.field, one.field) for one in self.identifiers} | {"message"}
        return payload.select([name for name in names if name in wanted] or names[:1])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Selector) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __str__(self) -> str:
        return self.text


@lru_cache(maxsize=_COMPILED)
def parse(text: str) -> Selector:
    """The selector that `text` says. Raises InvalidSelector: where, what was found there, and what is allowed."""
    tree = parser.parse(text)
    identifiers = dict.fromkeys(node for node, _ in syntax.walk(tree) if isinstance(node, Identifier))
    return Selector(syntax.render(tree), tuple(identifiers), tree)


def matches(selector: Selector, payload: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """Which rows of a stored payload, of either form, the selector matches: bool of shape (rows,).

    A row for which it is unknown does not match, nor does an encoded message that is malformed. Nothing is raised for what the
    payload holds.
    """
    import numpy as np

    found = np.zeros(payload.num_rows, np.bool_)
    evaluate = _encoded if "message" in payload.schema.names else _columnar
    with np.errstate(all="ignore"):  # numbers that are none, or infinite, are values like others: numpy need not warn of them
        for first in range(0, payload.num_rows, CHUNK_ROWS):
            part = payload.slice(first, CHUNK_ROWS)
            found[first : first + part.num_rows] = evaluate(selector, part)
    return found


def _columnar(selector: Selector, payload: pa.RecordBatch) -> Any:
    from penstock.broker_core.selectors.columnar import columnar

    return _true(selector, {name: columnar(payload, name) for name in selector.identifiers})


def _encoded(selector: Selector, payload: pa.RecordBatch) -> Any:
    import numpy as np
    import pyarrow as pa

    from penstock.broker_core.selectors import encoded, single

    columns, odd = encoded.encoded(payload, selector.identifiers)
    found = np.broadcast_to(_true(selector, columns), payload.num_rows) & ~odd
    rows = np.flatnonzero(odd)
    if len(rows):
        columns, accepted = single.one_by_one(payload.take(pa.array(rows)), selector.identifiers)
        found[rows[accepted]] = _true(selector, columns)
    return found


def _true(selector: Selector, columns: dict[Identifier, Operand]) -> Any:
    from penstock.broker_core.selectors.evaluate import truth

    return truth(selector.tree, columns).true
