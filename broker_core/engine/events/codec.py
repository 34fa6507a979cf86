"""Events as the journal has them.

A record's meta is one JSON object: `k` is the kind, the rest the fields; row sets, arrays and octets have the forms of `to_json`.
Payloads are not part of it.
"""

from __future__ import annotations

import base64
import json
from dataclasses import dataclass, fields
from json.encoder import encode_basestring_ascii
from typing import Any, ClassVar

import numpy as np

from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.series import narrowed
from penstock.broker_core.engine.commands.queues import PublishKey
from penstock.broker_core.errors import DamagedJournal


@dataclass(frozen=True)
class Event:
    kind: ClassVar[str]
    journaled: ClassVar[bool] = True


_KINDS: dict[str, type[Event]] = {}
# Per kind: how its meta begins; per field: name, how its entry begins, whether None is its default and left out.
_FIELDS: dict[type[Event], tuple[str, tuple[tuple[str, str, bool], ...]]] = {}


def know(*kinds: type[Event]) -> None:
    """Let these be written to the journal, and read from it."""
    for cls in kinds:
        _KINDS[cls.kind] = cls
        _FIELDS[cls] = (f'{{"k":"{cls.kind}"', tuple((f.name, f',"{f.name}":', f.default is None) for f in fields(cls)))


_SIMPLE = (str, int, bool, list)
_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def to_json(value: Any) -> Any:
    """A field's value as JSON has it: row sets, arrays and octets in the forms that `from_json` knows."""
    if isinstance(value, _SIMPLE):
        return value
    if isinstance(value, RowSet):
        return {"rows": value.to_json()}
    if isinstance(value, np.ndarray):
        value = narrowed(value) if value.dtype.kind != "S" else value
        return {"array": [value.dtype.str, base64.b64encode(value.tobytes()).decode()]}
    if isinstance(value, bytes):
        return {"bytes": base64.b64encode(value).decode()}
    if isinstance(value, dict):
        return {"map": {key: to_json(item) for key, item in value.items()}}
    if type(value) is tuple:
        return {"events": [json.loads(encode(event)) for event in value]}
    return value


def from_json(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if "rows" in value:
        return RowSet.from_json(value["rows"])
    if "array" in value:
        dtype, data = value["array"]
        return np.frombuffer(base64.b64decode(data), dtype)
    if "bytes" in value:
        return base64.b64decode(value["bytes"])
    if "events" in value:
        return tuple(_event(body) for body in value["events"])
    return {key: from_json(item) for key, item in value["map"].items()}


def encode(event: Event) -> bytes:
    """The record's meta. A field that may be None and is, is left out: None is its default then."""
    begin, known = _FIELDS[type(event)]
    parts = [begin]
    for name, prefix, optional in known:
        value = getattr(event, name)
        if value is None and optional:
            continue
        # Without the encoder's price for the names, numbers and rows of which every event has some.
        kind = type(value)
        if kind is int:
            text = str(value)
        elif kind is str:
            text = encode_basestring_ascii(value)
        elif kind is RowSet:
            text = f'{{"rows":{value.to_text()}}}'
        else:
            text = _JSON.encode(to_json(value))
        parts += (prefix, text)
    parts.append("}")
    return "".join(parts).encode()


def decode(meta: bytes) -> Event:
    return _event(json.loads(meta))


def _event(body: dict[str, Any]) -> Event:
    kind = body.pop("k")
    try:
        cls = _KINDS[kind]
    except KeyError:
        raise DamagedJournal(
            f"the journal holds an event {kind!r} that this Penstock does not know: it was written by a newer version; use "
            "that one"
        ) from None
    values = {name: from_json(value) for name, value in body.items()}
    if values.get("key") is not None:
        values["key"] = PublishKey(*values["key"])
    return cls(**values)
