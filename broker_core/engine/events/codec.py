"""Events in the journal: the meta of a record, without the payload.

The meta is one JSON object: the kind of the event as `k`, and its fields, with the forms of `columns.values`.

To change an event after a release, add a field with a default, or a new kind. Never give a field a new meaning or another name.
An older broker refuses unknown kinds and fields when it starts.
"""

from __future__ import annotations

import json
from dataclasses import fields
from json.encoder import encode_basestring_ascii
from typing import Any

from ... import __version__
from ...errors import DamagedJournal
from ..columns.rowset import RowSet
from ..columns.values import from_json, to_json
from ..model.publish_keys import PublishKey
from .event import KINDS, Event

_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False)


# By kind: the begin of the meta; for each field, its name, the begin of its entry, and whether None is its default.
_FORMS: dict[type[Event], tuple[str, tuple[tuple[str, str, bool], ...]]] = {}


def _form_of(kind: type[Event]) -> tuple[str, tuple[tuple[str, str, bool], ...]]:
    if (form := _FORMS.get(kind)) is not None:
        return form
    entries = tuple((f.name, f',"{f.name}":', f.default is None) for f in fields(kind))  # type: ignore[arg-type]  # a dataclass
    form = _FORMS[kind] = f'{{"k":"{kind.kind}"', entries
    return form


def encode(event: Event) -> bytes:
    begin, entries = _form_of(type(event))
    parts = [begin]
    for name, prefix, is_optional in entries:
        value = getattr(event, name)
        if value is None and is_optional:
            continue
        # Frequent types, for which the general encoder takes several times as long.
        kind = type(value)
        if kind is int:
            text = str(value)
        elif kind is str:
            text = encode_basestring_ascii(value)
        elif kind is RowSet:
            text = f'{{"rows":{value.to_text()}}}'
        elif kind is tuple:
            text = _JSON.encode({"events": [json.loads(encode(part)) for part in value]})
        else:
            text = _JSON.encode(to_json(value))
        parts += (prefix, text)
    parts.append("}")
    return "".join(parts).encode()


def decode(meta: bytes) -> Event:
    return _event(json.loads(meta))


def _event(body: dict[str, Any]) -> Event:
    name = body.pop("k")
    try:
        kind = KINDS[name]
    except KeyError:
        raise _unknown(f"an event {name!r}") from None
    values = {field: _value(value) for field, value in body.items()}
    if (key := values.get("key")) is not None:
        if len(key) > len(PublishKey._fields):
            raise _unknown(f"an event {name!r} with a key of {len(key)} parts")
        values["key"] = PublishKey(*key)
    try:
        return kind(**values)
    except TypeError:
        known = {field for field, *_ in _form_of(kind)[1]}
        unknown = [field for field in values if field not in known]
        if not unknown:
            raise
        raise _unknown(f"an event {name!r} with the field {unknown[0]!r}") from None


def _unknown(content: str) -> DamagedJournal:
    return DamagedJournal(
        f"the journal holds {content}, which this Penstock {__version__} does not know: a newer version wrote it. A downgrade is "
        "refused, and nothing is lost: start that version again, or restore a backup from before it"
    )


def _value(value: Any) -> Any:
    if isinstance(value, dict) and "events" in value:
        return tuple(_event(body) for body in value["events"])
    return from_json(value)
