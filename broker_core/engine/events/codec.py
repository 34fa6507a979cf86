"""Events as the journal has them.

A record's meta is one JSON object: `k` is the kind, the rest the fields; row sets, arrays and octets have the forms of `values`.
Payloads are not part of it.

To change an event: add a field with a default, because old journals lack it, or add a new kind. Never give a field a new
meaning. A field that is renamed keeps its former name in the journal: `stored_as`. An older version refuses what it does not
know, at its start.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, fields
from json.encoder import encode_basestring_ascii
from typing import Any, ClassVar

from ... import __version__
from ...errors import DamagedJournal
from ..columns.rowset import RowSet
from ..columns.values import from_json, to_json
from ..model.publish_keys import PublishKey


class Event:
    """One decision. Each kind is a frozen dataclass: its fields are what the journal has."""

    kind: ClassVar[str]
    journaled: ClassVar[bool] = True
    time: int | None = None  # microseconds since 1970, of the kinds that have a field for it: the state's time goes on to it


_STORED_AS = "stored as"
_KINDS: dict[str, type[Event]] = {}
# Per kind: how its meta begins; per field: name, how its entry begins, whether None is its default and left out.
_FIELDS: dict[type[Event], tuple[str, tuple[tuple[str, str, bool], ...]]] = {}
_RENAMED: dict[type[Event], list[tuple[str, str]]] = {}  # per kind: names in the journal, and of the fields that have another


def stored_as(name: str) -> dict[str, str]:
    """Make the metadata of a field that has another name in the journal than in the event."""
    return {_STORED_AS: name}


def know(*kinds: type[Event]) -> None:
    """Register kinds of event, so that the journal can hold them."""
    for cls in kinds:
        _KINDS[cls.kind] = cls
        found = fields(cls)  # type: ignore[arg-type]  # each kind is a dataclass
        stored = {f.name: f.metadata.get(_STORED_AS, f.name) for f in found}
        _FIELDS[cls] = (f'{{"k":"{cls.kind}"', tuple((f.name, f',"{stored[f.name]}":', f.default is None) for f in found))
        _RENAMED[cls] = [(old, name) for name, old in stored.items() if old != name]


@dataclass(frozen=True)
class Together(Event):
    """Several events, decided on one state: all of them happened, or none. None of them has a payload."""

    kind = "together"
    parts: tuple[Event, ...]


know(Together)


_JSON = json.JSONEncoder(separators=(",", ":"), check_circular=False)


def encode(event: Event) -> bytes:
    """Encode an event as a record's meta. A field that is None by default, and is None, is left out."""
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
        elif kind is tuple:
            text = _JSON.encode({"events": [json.loads(encode(each)) for each in value]})
        else:
            text = _JSON.encode(to_json(value))
        parts += (prefix, text)
    parts.append("}")
    return "".join(parts).encode()


def decode(meta: bytes) -> Event:
    """Decode a record's meta; DamagedJournal for a kind of event, or a field, that a newer version wrote."""
    return _event(json.loads(meta))


def _event(body: dict[str, Any]) -> Event:
    kind = body.pop("k")
    try:
        cls = _KINDS[kind]
    except KeyError:
        raise _newer(f"an event {kind!r}") from None
    for old, name in _RENAMED[cls]:
        if old in body:
            body[name] = body.pop(old)
    values = {name: _value(value) for name, value in body.items()}
    if (key := values.get("key")) is not None:
        if len(key) > len(PublishKey._fields):
            raise _newer(f"an event {kind!r} with a key of {len(key)} parts")
        values["key"] = PublishKey(*key)
    try:
        return cls(**values)
    except TypeError:
        known = {name for name, *_ in _FIELDS[cls][1]}
        unknown = [name for name in values if name not in known]
        if not unknown:
            raise
        raise _newer(f"an event {kind!r} with the field {unknown[0]!r}") from None


def _newer(what: str) -> DamagedJournal:
    return DamagedJournal(
        f"the journal holds {what}, which this Penstock {__version__} does not know: a newer version wrote it. A downgrade is "
        "refused, and nothing is lost: start that version again, or restore a backup from before it"
    )


def _value(value: Any) -> Any:
    if isinstance(value, dict) and "events" in value:
        return tuple(_event(body) for body in value["events"])
    return from_json(value)
