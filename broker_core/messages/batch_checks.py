"""Checks of record batches that clients send."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from ..errors import InvalidColumn, InvalidRequest, ResourceLimit
from ..quantities import MAX_MILLISECONDS
from . import text_checks, value_checks
from .columns import BARE_COLUMNS, MESSAGE_COLUMNS, SENT_COLUMNS

_BINARIES = (pa.binary(), pa.large_binary(), pa.binary_view())
_STRINGS = (pa.string(), pa.large_string(), pa.string_view())
_VIEWS = (pa.binary_view(), pa.string_view())


def validate(batch: pa.RecordBatch, most_bytes: int | None = None, *, now: int | None = None) -> pa.RecordBatch:
    """Return an incoming batch with known columns of the right types, in the order of the mask.

    A string body becomes its UTF-8 bytes. Large, view and dictionary forms of a type, and other widths of an integer, are cast.

    Raises InvalidRequest with column and row, and ResourceLimit if the cast columns would have more than `most_bytes`. That is
    computed first, since a dictionary or views can repeat a value many times. `now`: milliseconds since 1970; None sets no limit
    to `deliveryTime`.
    """
    try:
        names = batch.schema.names
        _check_names(names)
        arrays = {name: batch.column(names.index(name)) for name in MESSAGE_COLUMNS if name in names}
        for name, array in arrays.items():
            _check_type(name, array.type)
    except UnicodeDecodeError:
        raise InvalidRequest("the record batch is malformed: a name in its schema is not UTF-8") from None
    # First, because once journaled, invalid offsets and UTF-8 could not be removed.
    text_checks.validate(batch)
    # No bytes prove the number of nulls: a dictionary of them may claim any.
    for name, array in arrays.items():
        if pa.types.is_dictionary(array.type) and pa.types.is_null(array.type.value_type):
            arrays[name] = pa.nulls(len(array))
    if most_bytes is not None and any(array.type != MESSAGE_COLUMNS[name] for name, array in arrays.items()):
        nbytes = sum(_nbytes(array, MESSAGE_COLUMNS[name]) for name, array in arrays.items())
        if nbytes > most_bytes:
            raise ResourceLimit(
                f"a record batch has at most {most_bytes} bytes, this one {nbytes} once its columns have the types that messages"
                " have: send smaller ones"
            )
    columns = {name: _column(name, array) for name, array in arrays.items()}
    content = "body" if "body" in columns else "message"
    if columns[content].null_count:
        import pyarrow.compute as pc

        row = pc.index(pc.is_null(columns[content]), True).as_py()
        raise InvalidColumn(f"column {content!r} is null in row {row}; every message needs one (it may be empty)")
    value_checks.check(columns)
    if now is not None and "deliveryTime" in columns:
        _check_delivery_times(columns["deliveryTime"], now)
    return pa.RecordBatch.from_arrays(
        list(columns.values()), schema=pa.schema([pa.field(name, MESSAGE_COLUMNS[name]) for name in columns])
    )


def _check_names(names: Sequence[str]) -> None:
    for i, name in enumerate(names):
        if name not in SENT_COLUMNS:
            raise InvalidColumn(f"there is no message column {name!r}; allowed are {', '.join(SENT_COLUMNS)}")
        if name in names[:i]:
            raise InvalidColumn(f"column {name!r} is named twice")
    check_content(names)


def check_content(names: Sequence[str]) -> None:
    if "message" in names:
        for name in names:
            if name in BARE_COLUMNS:
                raise InvalidColumn(
                    f"column {name!r} cannot be combined with 'message', which is sent exactly as it is: drop one"
                )
    elif "body" not in names:
        raise InvalidColumn("there is no content: name a column 'body' (binary or string) or 'message' (a bare AMQP message)")


def _check_type(name: str, actual: pa.DataType) -> None:
    wanted = MESSAGE_COLUMNS[name]
    inner = actual.value_type if pa.types.is_dictionary(actual) else actual
    nested = inner != actual and (pa.types.is_dictionary(inner) or pa.types.is_nested(inner))
    if nested or (inner != wanted and not _castable(inner, wanted, name)):
        raise InvalidColumn(f"column {name!r} has type {actual}; it must be {wanted}")


def _check_delivery_times(times: pa.Array, now: int) -> None:
    import pyarrow.compute as pc

    latest = (now + MAX_MILLISECONDS) * 1000
    numbers = times.cast(pa.int64())
    if (pc.max(numbers).as_py() or 0) < latest:
        return
    row = pc.index(pc.greater_equal(numbers, latest), True).as_py()
    raise InvalidColumn(f"'deliveryTime' is more than ten years from now in row {row}: write an earlier time, or null")


def _column(name: str, array: pa.Array) -> pa.Array:
    wanted = MESSAGE_COLUMNS[name]
    if array.type == wanted:
        return array
    try:
        return _cast(array, wanted)
    except pa.ArrowException as error:
        raise InvalidColumn(f"column {name!r} has a value that does not fit {wanted}: {error}") from error


def _cast(array: pa.Array, wanted: pa.DataType) -> pa.Array:
    if pa.types.is_dictionary(array.type):
        values = _cast(array.dictionary, wanted)
        return values if len(values) == 0 and len(array) == 0 else values.take(array.indices)
    if pa.types.is_map(wanted) and pa.types.is_map(array.type):
        children = [_cast(child, pa.string()) for child in (array.keys, array.items)]
        entries = pa.StructArray.from_arrays(children, fields=[wanted.key_field, wanted.item_field])
        return pa.Array.from_buffers(wanted, len(array), array.buffers()[:2], array.null_count, array.offset, [entries])
    return array if array.type == wanted else _without_hidden(array).cast(wanted)


def _without_hidden(array: pa.Array) -> pa.Array:
    """Empty the null slots of views: these were not checked, and a cast would follow them."""
    import numpy as np

    if array.type not in _VIEWS or not array.null_count:
        return array
    validity, views, *data = array.buffers()
    slots = np.frombuffer(views, np.uint8)[: 16 * (array.offset + len(array))].reshape(-1, 16).copy()
    slots[array.offset :][array.is_null().to_numpy(zero_copy_only=False)] = 0
    return pa.Array.from_buffers(array.type, len(array), [validity, pa.py_buffer(slots), *data], array.null_count, array.offset)


def _nbytes(array: pa.Array, wanted: pa.DataType) -> int:
    types = pa.types
    if array.type == wanted:
        return int(array.get_total_buffer_size())
    if types.is_map(array.type):
        return 4 * len(array) + sum(_nbytes_of_texts(child) for child in (array.keys, array.items))
    if types.is_binary(wanted) or types.is_string(wanted):
        return _nbytes_of_texts(array)
    return 8 * len(array)  # numbers, times, and offsets of a map of nulls


def _nbytes_of_texts(array: pa.Array) -> int:
    import pyarrow.compute as pc

    return 4 * len(array) + int(pc.sum(_lengths(array)).as_py() or 0)


def _lengths(array: pa.Array) -> pa.Array:
    """Null slots, which can have a length in Arrow, are null."""
    import numpy as np
    import pyarrow.compute as pc

    if pa.types.is_null(array.type) or not len(array):
        return pa.nulls(len(array), pa.int64())
    if pa.types.is_dictionary(array.type):
        return _lengths(array.dictionary).take(array.indices)
    if array.type in _VIEWS:
        views = np.frombuffer(array.buffers()[1], np.int32, 4 * (array.offset + len(array))).reshape(-1, 4)
        return pa.array(views[array.offset :, 0], mask=array.is_null().to_numpy(zero_copy_only=False))
    return pc.binary_length(array)


def _castable(type_: pa.DataType, wanted: pa.DataType, name: str) -> bool:
    types = pa.types
    if types.is_null(type_):
        return True
    if types.is_binary(wanted):
        return type_ in _BINARIES or (name == "body" and type_ in _STRINGS)
    if types.is_string(wanted):
        return type_ in _STRINGS
    if types.is_integer(wanted):
        return bool(types.is_integer(type_))
    if types.is_timestamp(wanted):
        # A time without a zone is ambiguous.
        return bool(types.is_timestamp(type_) and type_.tz is not None)
    if types.is_map(wanted):
        return bool(types.is_map(type_)) and type_.key_type in _STRINGS and type_.item_type in _STRINGS
    return False
