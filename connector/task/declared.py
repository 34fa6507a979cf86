"""The rows of a task with the nullability of the user's schema, and perhaps a body of type string."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from ...broker_core.errors import InvalidColumn
from ...broker_core.messages.text_checks import SHOWN
from ..workers import freeze_modules

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

BODY, INVALID_IS_ERROR = "body", "error"
#: Columns that name the message in an error.
_NAMING = ("queue", "sequenceNumber")
#: Well-formed UTF-8 (RFC 3629, 4), as a pattern for bytes.
_UTF_8 = (
    r"^(?:[\x00-\x7F]|[\xC2-\xDF][\x80-\xBF]|\xE0[\xA0-\xBF][\x80-\xBF]|[\xE1-\xEC\xEE\xEF][\x80-\xBF]{2}"
    r"|\xED[\x80-\x9F][\x80-\xBF]|\xF0[\x90-\xBF][\x80-\xBF]{2}|[\xF1-\xF3][\x80-\xBF]{3}|\xF4[\x80-\x8F][\x80-\xBF]{2})*$"
)


@dataclass(frozen=True)
class DeclaredRows:
    """`columns` are requested of the broker; the first ones, which Spark expects, have an entry in `nullable`."""

    columns: tuple[str, ...]
    nullable: tuple[bool, ...]
    has_text: bool = False  # the body is a string
    refuses_invalid: bool = False  # instead of null for a body that is not UTF-8

    @classmethod
    def of(cls, schema: StructType, options: Mapping[str, Any]) -> DeclaredRows:
        names, nullable = tuple(schema.names), tuple(field.nullable for field in schema.fields)
        has_text = BODY in names and schema[BODY].dataType.typeName() == "string"
        refuses = has_text and options["invalidText"] == INVALID_IS_ERROR
        more = tuple(name for name in _NAMING if name not in names) if refuses else ()
        return cls(names + more, nullable, has_text, refuses)

    def rows(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield batches of exactly the declared schema: Spark compares it."""
        schema: pa.Schema | None = None
        for batch in batches:
            columns = batch.columns[: len(self.nullable)]
            if self.has_text:
                columns[self.columns.index(BODY)] = self._texts(batch)
            if schema is None:
                fields = zip(self.columns, columns, self.nullable, strict=False)
                schema = pa.schema([pa.field(name, column.type, may) for name, column, may in fields])
            yield batch if batch.schema.equals(schema) else pa.RecordBatch.from_arrays(columns, schema=schema)
        freeze_modules()  # all of them are loaded now

    def _texts(self, batch: pa.RecordBatch) -> pa.Array:
        """Return the bodies as strings. A valid batch is not copied."""
        octets = batch.column(self.columns.index(BODY))
        try:
            return octets.cast(pa.string())
        except pa.ArrowInvalid:  # not UTF-8
            import pyarrow.compute as pc

            valid = pc.match_substring_regex(octets, _UTF_8)
            if self.refuses_invalid:
                row = pc.index(valid, False).as_py()
                queue, sequence = (batch.column(self.columns.index(name))[row] for name in _NAMING)
                shown = octets[row].as_py()
                raise InvalidColumn(
                    f"the body of message {sequence} of queue {queue.as_py()!r} is not UTF-8"
                    f" ({shown[:SHOWN]!r}{'…' if len(shown) > SHOWN else ''}): with invalidText=null it is null, and a column"
                    " 'body' of type binary has its bytes"
                ) from None
            return pc.if_else(valid, octets, None).cast(pa.string())
