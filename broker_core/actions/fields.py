"""Typed requests: JSON is checked against the fields of a dataclass, whose names are in camel case in JSON."""

from __future__ import annotations

import contextlib
import json
import threading
import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields
from typing import Annotated, Any, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

from .. import errors
from ..selectors import is_blank
from ..settings import strict_json

MAX_REQUEST_BYTES = 1 << 20  # fits `stage.publish` with thousands of stages
LARGE_BYTES = 16 << 10  # larger requests are parsed one at a time: their values may take fifty times the bytes of their JSON
_parsing_large = threading.Lock()


@dataclass(frozen=True)
class Request:
    """The fields of a request."""

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, spec.attribute) for name, spec in specs_of(type(self)).items()}


R = TypeVar("R", bound=Request)


class About(NamedTuple):
    """Annotation of a field. `is_confidential`: the audit log omits its value."""

    about: str
    least: int | None = None
    is_confidential: bool = False


class FieldSpec(NamedTuple):
    """A declared field."""

    attribute: str
    types: tuple[type, ...]
    items: type | None  # of a list, if all items have one type
    is_required: bool
    default: Any
    about: str
    least: int | None
    is_confidential: bool

    def check(self, request: str, name: str, value: Any) -> Any:
        if type(value) not in self.types or (isinstance(value, int) and not -(2**63) <= value < 2**63):
            names = " or ".join(allowed.__name__ for allowed in self.types)
            raise errors.InvalidRequest(f"{request}: field {name!r} must be {names}, not {_excerpt(value)}")
        if type(value) is list:
            self._check_items(request, name, value)
        if self.least is not None and value is not None and value < self.least:
            raise errors.InvalidRequest(f"{request}: field {name!r} must be at least {self.least}, not {value}")
        return None if name == "selector" and isinstance(value, str) and is_blank(value) else value

    def _check_items(self, request: str, name: str, items: list[Any]) -> None:
        if self.items is str:
            valid, text = all(type(item) is str for item in items), "strings"
        elif self.items is int:
            valid, text = all(type(item) is int and 0 <= item < 2**62 for item in items), "whole numbers from 0 on"
        else:
            valid = not any(type(item) in (list, dict) for item in items)
            text = "strings or of numbers, not of lists or objects"
        if not valid:
            raise errors.InvalidRequest(f"{request}: field {name!r} must be a list of {text}")


_specs: dict[type[Request], Mapping[str, FieldSpec]] = {}


def specs_of(kind: type[Request]) -> Mapping[str, FieldSpec]:
    """Return the declared fields by their JSON names."""
    if kind not in _specs:
        _specs[kind] = _read_specs(kind)
    return _specs[kind]


def _read_specs(kind: type[Request]) -> dict[str, FieldSpec]:
    hints, specs = get_type_hints(kind, include_extras=True), {}
    for declared in fields(kind):
        annotation, extra = hints[declared.name], About("")
        if get_origin(annotation) is Annotated:
            annotation, extra = get_args(annotation)
        members = get_args(annotation) if get_origin(annotation) in (Union, types.UnionType) else (annotation,)
        items = {argument for member in members if get_origin(member) is list for argument in get_args(member)} - {Any}
        default = declared.default if declared.default_factory is MISSING else declared.default_factory()
        head, *tail = declared.name.split("_")
        specs[head + "".join(map(str.capitalize, tail))] = FieldSpec(
            declared.name,
            tuple(get_origin(member) or member for member in members),
            items.pop() if items else None,
            default is MISSING,
            None if default is MISSING else default,
            *extra,
        )
    return specs


def parse(name: str, data: bytes, kind: type[R]) -> R:
    """`name`: of the request, for errors. Raises InvalidRequest."""
    with _one_large_at_a_time(data):
        return parse_fields(name, _object(name, data), kind)


def parse_fields(request: str, values: dict[str, Any], kind: type[R]) -> R:
    specs = specs_of(kind)
    for name in values:
        if name not in specs:
            raise errors.InvalidRequest(f"{request}: unknown field {name!r:.80}; known are {', '.join(specs) or 'none'}")
    attributes = {}
    for name, spec in specs.items():
        if name not in values and spec.is_required:
            raise errors.InvalidRequest(f"{request}: field {name!r} is missing")
        attributes[spec.attribute] = spec.check(request, name, values.get(name, spec.default))
    return kind(**attributes)


def from_query(request: str, pairs: list[list[str]], kind: type[Request]) -> bytes:
    """Return the query of a URL as JSON. A list is several pairs with one name, an object is JSON."""
    specs, values = specs_of(kind), dict[str, Any]()
    for name, text in pairs:
        allowed = specs[name].types if name in specs else (str,)
        if list in allowed:
            values.setdefault(name, []).append(_query_value(text))
        elif name in values:
            raise errors.InvalidRequest(f"{request}: field {name!r:.80} is there twice")
        else:
            values[name] = text if str in allowed else _query_value(text)
    return json.dumps(values).encode()


def parse_op(data: bytes, kinds: Mapping[str, type[Request]]) -> Request:
    with _one_large_at_a_time(data):
        op = _object("request", data).get("op")
    if not isinstance(op, str) or op not in kinds:
        raise errors.InvalidRequest(f"field 'op' must be one of {', '.join(kinds)}, not {_excerpt(op)}")
    return parse(op, data, kinds[op])


def _query_value(text: str) -> Any:
    try:
        return strict_json.loads(text)
    except ValueError:
        return text


def _one_large_at_a_time(data: bytes) -> contextlib.AbstractContextManager[Any]:
    """Most large requests are refused, which frees their memory for the next one."""
    return _parsing_large if len(data) > LARGE_BYTES else contextlib.nullcontext()


def _excerpt(value: Any) -> str:
    return f"a {type(value).__name__}" if isinstance(value, (list, dict)) else f"{value!r:.80}"


def _object(name: str, data: bytes) -> dict[str, Any]:
    if len(data) > MAX_REQUEST_BYTES:
        raise errors.InvalidRequest(f"{name}: a request has at most {MAX_REQUEST_BYTES} bytes, this one {len(data)}")
    try:
        request = strict_json.loads(data)
    except (ValueError, RecursionError) as error:
        raise errors.InvalidRequest(f"{name}: the request is not JSON: {error}") from None
    if not isinstance(request, dict):
        raise errors.InvalidRequest(f"{name}: the request is not a JSON object")
    if b"\\u" in data:
        try:
            json.dumps(request, ensure_ascii=False).encode()
        except UnicodeEncodeError:
            text = f"{name}: a text has half of a surrogate pair, which is not a character"
            raise errors.InvalidRequest(text) from None
    return request
