"""Spark's types of the columns, and rules for schemas of users and DataFrames."""

from __future__ import annotations

import pyarrow as pa
from pyspark.sql import types as T
from pyspark.sql.types import DataType, StructField, StructType

from ..broker_core.errors import InvalidColumn
from ..broker_core.messages import batch_checks
from ..broker_core.messages.columns import (
    BATCH,
    COLUMNS,
    DEFAULT_COLUMNS,
    INTERNAL_COLUMNS,
    NOBODY,
    NOT_NULL,
    SENT_COLUMNS,
    STRING_MAP,
    TIMESTAMP,
)
from . import suggestions

_OF_ARROW: dict[pa.DataType, DataType] = {
    pa.string(): T.StringType(),
    pa.binary(): T.BinaryType(),
    pa.bool_(): T.BooleanType(),
    pa.int16(): T.ShortType(),
    pa.int32(): T.IntegerType(),
    pa.int64(): T.LongType(),
    TIMESTAMP: T.TimestampType(),
    STRING_MAP: T.MapType(T.StringType(), T.StringType(), True),
}
TYPES: dict[str, DataType] = {name: _OF_ARROW[column.type] for name, column in COLUMNS.items() if name not in INTERNAL_COLUMNS}
_BATCH_ONLY = tuple(name for name in TYPES if COLUMNS[name].read == BATCH)
_SINK_ONLY = tuple(name for name in TYPES if COLUMNS[name].read == NOBODY)
#: Columns that a sink ignores, so that messages can be written back.
READ_ONLY = frozenset(name for name in TYPES if not COLUMNS[name].written)
_BY_LOWER = {name.lower(): name for name in TYPES}


def default_schema() -> StructType:
    """All columns are nullable, so that INSERT INTO a view without a schema can leave them out."""
    return StructType([StructField(name, TYPES[name]) for name in DEFAULT_COLUMNS])


def source_schema(columns: tuple[str, ...]) -> StructType:
    return StructType([StructField(name, TYPES[name], name not in NOT_NULL) for name in columns])


# --- The source ------------------------------------------------------------------------------------------------------------


def check_source(schema: StructType, *, stream: bool) -> None:
    """Refuse a user's schema unless it names columns of the source with their types. A body may be a string.

    A column that is never null may be declared nullable, as DDL without NOT NULL does.
    """
    allowed = [name for name in TYPES if name not in _SINK_ONLY and not (stream and name in _BATCH_ONLY)]
    if not schema.fields:
        raise InvalidColumn(f"the schema names no column; it may name any of {', '.join(allowed)}")
    for field in schema.fields:
        if field.name not in allowed:
            raise InvalidColumn(_no_such_column(field.name, allowed, stream))
        if field.dataType != TYPES[field.name] and (field.name, field.dataType) != ("body", T.StringType()):
            also = " or string" if field.name == "body" else ""
            raise InvalidColumn(
                f"column {field.name!r} of the schema has type {field.dataType.simpleString()};"
                f" it must be {TYPES[field.name].simpleString()}{also} (cast it after the read)"
            )
        if not field.nullable and field.name not in NOT_NULL:
            raise InvalidColumn(f"column {field.name!r} of the schema may be null; leave NOT NULL out")
    names = [field.name for field in schema.fields]
    if len(set(names)) < len(names):
        raise InvalidColumn(f"the schema names column {next(n for n in names if names.count(n) > 1)!r} twice")


def _no_such_column(name: str, allowed: list[str], stream: bool) -> str:
    if stream and name in _BATCH_ONLY:
        return f"column {name!r} is for batch reads (spark.read): in a stream every message is being acquired"
    if name in _SINK_ONLY:
        return f"column {name!r} is the sink's; a source does not have it"
    return f"there is no source column {name!r}{suggestions.for_column(name, allowed)} Allowed are {', '.join(allowed)}"


# --- The sink --------------------------------------------------------------------------------------------------------------


def sink_columns(schema: StructType, *, queue: str | None, ignore_unknown: bool) -> dict[str, int]:
    """Map message columns, and `queue` if it routes, to their index in the DataFrame. Names match in any case.

    The option `queue` wins over the column, like `topic` of Spark's Kafka sink, so messages of one queue can be written to
    another without dropping the column.
    """
    indexes: dict[str, int] = {}
    for index, field in enumerate(schema.fields):
        name = _BY_LOWER.get(field.name.lower())
        if name is None:
            if not ignore_unknown:
                known = [*SENT_COLUMNS, "queue"]
                raise InvalidColumn(
                    f"there is no sink column {field.name!r}{suggestions.for_column(field.name, known)} Rename or drop it, or set"
                    f" the option ignoreUnknownColumns=true; known are {', '.join(known)}"
                )
            continue
        if name in READ_ONLY:
            continue
        if name in indexes:
            raise InvalidColumn(f"column {name!r} is there twice")
        _check_sink_type(name, field.dataType)
        indexes[name] = index
    batch_checks.check_content([name for name in indexes if name != "queue"])
    if queue is not None:
        indexes.pop("queue", None)
    elif "queue" not in indexes:
        raise InvalidColumn(
            "no queue to write to: set the option queue or exchange, or add a column 'queue' that names one in each row"
        )
    return indexes


SETTLE: dict[str, DataType] = {"delivery": T.BinaryType(), "outcome": T.StringType(), "error": T.StringType()}


def settle_columns(schema: StructType, *, ignore_unknown: bool) -> dict[str, int]:
    indexes: dict[str, int] = {}
    for index, field in enumerate(schema.fields):
        name = field.name.lower()
        if name not in SETTLE:
            if name not in _BY_LOWER and not ignore_unknown:
                raise InvalidColumn(
                    f"there is no column {field.name!r} to settle by{suggestions.for_column(name, SETTLE)} Drop it, or set the"
                    f" option ignoreUnknownColumns=true; operation=settle reads {', '.join(SETTLE)}"
                )
            continue
        if name in indexes:
            raise InvalidColumn(f"column {name!r} is there twice")
        if not isinstance(field.dataType, (type(SETTLE[name]), T.NullType)):
            wanted, is_ = SETTLE[name].simpleString(), field.dataType.simpleString()
            raise InvalidColumn(f"column {name!r} has type {is_}; it must be {wanted}; cast it")
        indexes[name] = index
    for name, hint in (("delivery", "name it in the stream's schema"), ("outcome", "accepted, rejected, released or modified")):
        if name not in indexes:
            raise InvalidColumn(f"operation=settle needs a column {name!r} ({hint})")
    return indexes


def _check_sink_type(name: str, actual: DataType) -> None:
    wanted = TYPES[name]
    if isinstance(actual, T.NullType) or _fits(name, actual, wanted):
        return
    also = " or string" if name == "body" else ""
    hint = "; cast it"
    if isinstance(actual, T.TimestampNTZType):
        hint = "; cast it to timestamp, which has a time zone"
    elif isinstance(wanted, T.TimestampType) and isinstance(actual, T.NumericType):  # Spark casts a number as seconds
        hint = f"; use timestamp_millis({name}) for milliseconds since 1970, timestamp_seconds({name}) for seconds"
    raise InvalidColumn(f"column {name!r} has type {actual.simpleString()}; it must be {wanted.simpleString()}{also}{hint}")


def _fits(name: str, actual: DataType, wanted: DataType) -> bool:
    if name == "body":
        return isinstance(actual, (T.BinaryType, T.StringType))
    if isinstance(wanted, (T.ShortType, T.LongType)):
        # A value that does not fit is refused with its row.
        return isinstance(actual, (T.ByteType, T.ShortType, T.IntegerType, T.LongType))
    if isinstance(wanted, T.MapType):
        return isinstance(actual, T.MapType) and all(
            isinstance(kind, T.StringType) for kind in (actual.keyType, actual.valueType)
        )
    return isinstance(actual, type(wanted))
