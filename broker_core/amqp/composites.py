"""Composite types (1.4): described lists with named fields, as dataclasses. A class body is the only table of its fields.

A null field takes its default when decoded. A field equal to its default is null when encoded. Trailing nulls are left out.
Fields beyond the definition are refused.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from itertools import zip_longest
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, TypeVar
from uuid import UUID

from . import encoder
from .decoder import LIMITS, DecoderLimits, decode
from .encoder import encode_into
from .errors import DecodeError, EncodeError, FieldError
from .types import Array, Described, Pairs, Symbol, Timestamp, UByte, UInt, ULong, UShort, Value

if TYPE_CHECKING:
    from typing_extensions import dataclass_transform
else:

    def dataclass_transform(**_: Any) -> Callable[[Any], Any]:
        return lambda decorator: decorator


_C = TypeVar("_C", bound="type[Composite]")
_Made = TypeVar("_Made", bound="Composite")


class Field(NamedTuple):
    """One row of the table. `choices` are the values of a restricted type."""

    name: str
    attribute: str
    wire: str
    mandatory: bool
    default: Any
    choices: tuple[Any, ...]
    written: bool = False


class Composite:
    """Base of all composites, with both descriptors and its roles in a field."""

    __slots__ = ()
    CODE: ClassVar[int]
    SYMBOL: ClassVar[str]
    PROVIDES: ClassVar[tuple[str, ...]]
    FIELDS: ClassVar[tuple[Field, ...]]

    def encode(self) -> bytes:
        out = bytearray()
        _put_composite(out, self)
        return bytes(out)


def wire(kind: str, *, mandatory: bool = False, default: Any = None, choices: tuple[Any, ...] = (), written: bool = False) -> Any:
    """Declare a field. A `written` one is sent even if it has its default."""
    metadata = {"wire": kind, "mandatory": mandatory, "choices": choices, "written": written}
    return dataclasses.field(metadata=metadata) if mandatory else dataclasses.field(default=default, metadata=metadata)


_BY_CODE: dict[int, type[Composite]] = {}
_BY_SYMBOL: dict[str, type[Composite]] = {}


@dataclass_transform(kw_only_default=True, field_specifiers=(wire,))
def composite(code: int, symbol: str, *provides: str) -> Callable[[_C], _C]:
    def decorate(cls: _C) -> _C:
        made: Any = dataclasses.dataclass(kw_only=True, slots=True)(cls)
        made.CODE, made.SYMBOL, made.PROVIDES = code, symbol, provides
        made.FIELDS = tuple(_row(field) for field in dataclasses.fields(made))
        _BY_CODE[code] = _BY_SYMBOL[symbol] = made
        encoder.WRITERS[made] = _put_composite
        return made  # type: ignore[no-any-return]

    return decorate


def _row(field: dataclasses.Field[Any]) -> Field:
    default = None if field.metadata["mandatory"] else field.default
    return Field(field.name.replace("_", "-"), field.name, default=default, **field.metadata)


# --- decoding


def decode_composite(buffer: bytes, position: int, end: int, role: str, limits: DecoderLimits = LIMITS) -> tuple[Composite, int]:
    value, after = decode(buffer, position, end, limits)
    composite = compose(value)
    if not isinstance(composite, Composite) or role not in composite.PROVIDES:
        descriptor = composite.descriptor if isinstance(composite, Described) else type(composite).__name__
        raise DecodeError(f"{descriptor!r} is no {role}", position)
    return composite, after


class Invalid(NamedTuple):
    """A composite of a known type with invalid fields.

    `fields` are its valid fields by attribute, `wrong` the other attributes. Both are empty if the list itself is wrong.
    """

    cls: type[Composite]
    values: Value
    fields: dict[str, Any]
    wrong: frozenset[str]
    description: str


def decode_body(buffer: bytes, position: int, end: int, limits: DecoderLimits = LIMITS) -> tuple[Composite | Invalid, int]:
    """Return a frame's body, `Invalid` if a field is."""
    value, after = decode(buffer, position, end, limits)
    try:
        body = compose(value)
    except FieldError as error:
        assert isinstance(value, Described)
        known = _class_of(value.descriptor)
        assert known is not None
        body = _sifted(known, value.value, error)
    cls = body.cls if isinstance(body, Invalid) else type(body)
    if not issubclass(cls, Composite) or "frame" not in cls.PROVIDES:
        descriptor = body.descriptor if isinstance(body, Described) else cls.__name__
        raise DecodeError(f"{descriptor!r} is not a frame", position)
    return body, after


def _sifted(cls: type[Composite], values: Value, error: FieldError) -> Invalid:
    fields: dict[str, Any] = {}
    wrong: set[str] = set()
    if isinstance(values, list) and len(values) <= len(cls.FIELDS):
        for field, value in zip_longest(cls.FIELDS, values):
            try:
                if value is not None:
                    fields[field.attribute] = _checked(cls, field, value)
                elif field.mandatory:
                    wrong.add(field.attribute)
            except FieldError:
                wrong.add(field.attribute)
    return Invalid(cls, values, fields, frozenset(wrong), error.description)


def _class_of(descriptor: Value) -> type[Composite] | None:
    if type(descriptor) is ULong:
        return _BY_CODE.get(descriptor)
    return _BY_SYMBOL.get(descriptor) if type(descriptor) is Symbol else None


def compose(value: Value) -> Value:
    """Return the composite of a known descriptor, any other value unchanged. Raises FieldError."""
    if not isinstance(value, Described):
        return value
    cls = _class_of(value.descriptor)
    return value if cls is None else from_values(cls, value.value)


def from_values(cls: type[_Made], values: Value) -> _Made:
    if not isinstance(values, list):
        raise FieldError(f"{cls.SYMBOL} is not a list")
    if len(values) > len(cls.FIELDS):
        raise FieldError(f"{cls.SYMBOL} has {len(values)} fields instead of {len(cls.FIELDS)} at most")
    arguments: dict[str, Any] = {}
    for field, value in zip_longest(cls.FIELDS, values):
        if value is not None:
            arguments[field.attribute] = _checked(cls, field, value)
        elif field.mandatory:
            raise FieldError(f"{cls.SYMBOL} without its {field.name}")
    return cls(**arguments)


def _checked(cls: type[Composite], field: Field, value: Value) -> Value:
    convert = _KINDS[field.wire][0]
    try:
        value = convert(value)
    except (TypeError, ValueError):
        kind = _NAMES.get(field.wire, field.wire)
        raise FieldError(f"{cls.SYMBOL}: {field.name} is not of type {kind}") from None
    if field.choices and value not in field.choices:
        raise FieldError(f"{cls.SYMBOL}: {field.name} cannot be {value!r}")
    if field.mandatory and value == ():
        raise FieldError(f"{cls.SYMBOL} without its {field.name}")
    return value


_NAMES = {
    "fields": "map with symbols as keys",
    "notes": "map with symbols as keys",
    "unsettled": "map with binaries as keys",
    "symbols": "symbol or array of symbols",
}


def _exactly(*classes: type) -> Callable[[Value], Value]:
    def convert(value: Value) -> Value:
        if type(value) not in classes:
            raise TypeError
        return value

    return convert


def _number(cls: type[int]) -> Callable[[Value], int]:
    """Convert to a plain int: the field defines its type, so both ways of decoding agree."""

    def convert(value: Value) -> int:
        if type(value) is not cls:
            raise TypeError
        return int(value)

    return convert


def _role(role: str, *, is_extensible: bool = True) -> Callable[[Value], Value]:
    """Require a composite that provides `role`, or an extension's described type."""

    def convert(value: Value) -> Value:
        composite = compose(value)
        if (isinstance(composite, Composite) and role in composite.PROVIDES) or (
            is_extensible and isinstance(composite, Described)
        ):
            return composite
        raise TypeError

    return convert


def _symbols(value: Value) -> tuple[Symbol, ...]:
    if type(value) is Symbol:
        return (value,)
    if isinstance(value, Array) and value.kind == "symbol" and not value.descriptors:
        return value.items
    raise TypeError


def _fields(value: Value) -> Mapping[Symbol, Value]:
    if type(value) is not dict or any(type(key) is not Symbol for key in value):
        raise TypeError
    return value


def _notes(value: Value) -> Mapping[Symbol, Value]:
    """Accept strings as keys: the Java and JavaScript SDKs of Azure Service Bus write them in outcomes."""
    if type(value) is not dict or not all(type(key) in (Symbol, str) and key.isascii() for key in value):
        raise TypeError
    return {Symbol(key): item for key, item in value.items()}


def _unsettled(value: Value) -> Mapping[bytes, Value]:
    if type(value) is not dict or any(type(key) is not bytes for key in value):
        raise TypeError
    state = _role("delivery-state")
    return {key: None if item is None else state(item) for key, item in value.items()}


# --- encoding


def _put_composite(out: bytearray, value: Composite) -> None:
    body = bytearray()
    written = count = 0
    for number, field in enumerate(value.FIELDS, 1):
        item = getattr(value, field.attribute)
        if item is None or item == () or (item == field.default and not (field.mandatory or field.written)):
            if field.mandatory:
                raise EncodeError(f"{value.SYMBOL} without its {field.name}")
            body.append(0x40)
            continue
        if field.choices and item not in field.choices:
            raise EncodeError(f"{value.SYMBOL}: {field.name} cannot be {item!r}")
        try:
            _KINDS[field.wire][1](body, item)
        except (TypeError, AttributeError):
            raise EncodeError(f"{value.SYMBOL}: {field.name} cannot be {item!r}") from None
        written, count = len(body), number
    del body[written:]
    out += bytes((0x00, 0x53, value.CODE))
    if count:
        encoder.put_compound(out, 0xC0, count, body)
    else:
        out.append(0x45)


def _put_symbols(out: bytearray, value: tuple[str, ...] | str) -> None:
    # A single symbol is also legal, but some peers refuse it.
    items = (value,) if isinstance(value, str) else tuple(value)
    encode_into(out, Array("symbol", items))


def _put_fields(out: bytearray, value: Mapping[str, Value]) -> None:
    encode_into(out, {key if isinstance(key, Symbol) else Symbol(key): item for key, item in value.items()})


def _put_unsettled(out: bytearray, value: Mapping[bytes, Value]) -> None:
    encode_into(out, {bytes(key): item for key, item in value.items()})


MAX_TRANSACTION_ID = 32  # octets (4.5.4)


def _transaction_id(value: Value) -> bytes:
    if type(value) is not bytes or len(value) > MAX_TRANSACTION_ID:
        raise TypeError
    return value


_message_id = _exactly(ULong, UUID, bytes, str)


def _put_boolean(out: bytearray, value: bool) -> None:
    if not isinstance(value, bool):
        raise TypeError
    encoder.put_boolean(out, value)


# Wire type → check of a decoded value, writer.
_KINDS: dict[str, tuple[Callable[[Value], Value], Callable[[bytearray, Any], None]]] = {
    "boolean": (_exactly(bool), _put_boolean),
    "ubyte": (_number(UByte), encoder.put_ubyte),
    "ushort": (_number(UShort), encoder.put_ushort),
    "uint": (_number(UInt), encoder.put_uint),
    "ulong": (_number(ULong), encoder.put_ulong),
    "timestamp": (_number(Timestamp), encoder.put_timestamp),
    "binary": (_exactly(bytes), encoder.put_binary),
    "transaction-id": (_transaction_id, lambda out, value: encoder.put_binary(out, _transaction_id(value))),
    "string": (_exactly(str), encoder.put_string),
    "symbol": (_exactly(Symbol), encoder.put_symbol),
    "symbols": (_symbols, _put_symbols),
    "message-id": (_message_id, lambda out, value: encode_into(out, _message_id(value))),
    "address": (_exactly(str), encoder.put_string),
    "map": (_exactly(dict, Pairs), encode_into),
    "fields": (_fields, _put_fields),
    "notes": (_notes, _put_fields),
    "unsettled": (_unsettled, _put_unsettled),
    "any": (lambda value: value, encode_into),
    "error": (_role("error", is_extensible=False), encode_into),
    "source": (_role("source"), encode_into),
    "target": (_role("target"), encode_into),
    "delivery-state": (_role("delivery-state"), encode_into),
    "outcome": (_role("outcome"), encode_into),
}
