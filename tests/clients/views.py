"""Views of a value of one AMQP type in each client's language, and the values that each client can send."""

from __future__ import annotations

from typing import Any

#: Types with names in JMS; all clients can send and read these.
JMS_VALUES: dict[str, dict[str, Any]] = {
    "yes": {"boolean": True},
    "no": {"boolean": False},
    "byte": {"byte": -7},
    "short": {"short": -30_000},
    "int": {"int": 2_000_000_000},
    "small": {"int": -1},
    "long": {"long": -(2**40)},
    "float": {"float": 0.5},
    "double": {"double": 1e100},
    "string": {"string": "grüße, 世界 🦀"},
    "empty": {"string": ""},
}
OTHER_VALUES: dict[str, dict[str, Any]] = {
    **JMS_VALUES,
    "null": {"null": None},
    "ubyte": {"ubyte": 200},
    "ushort": {"ushort": 60_000},
    "uint": {"uint": 4_000_000_000},
    "zero": {"uint": 0},
    "ulong": {"ulong": 2**50},
    "timestamp": {"timestamp": 1_700_000_000_123},
    "uuid": {"uuid": "00112233-4455-6677-8899-aabbccddeeff"},
    "binary": {"binary": "00ff10"},
}
NUMBERS = {"ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long", "float", "double"}


def as_seen(typed: dict[str, Any], by: str) -> dict[str, Any]:
    """A typed value as the client `by` shows it."""
    ((name, value),) = typed.items()
    if name == "list":
        return {"list": [as_seen(item, by) for item in value]}
    if name == "map":
        return {"map": [[as_seen(key, by), as_seen(item, by)] for key, item in value]}
    if by == "rhea":
        if name in NUMBERS:
            return {"number": value}
        if name == "uuid":
            return {"binary": value.replace("-", "")}
        if name == "symbol":
            return {"string": value}
    return typed


def values_between(sender: str, receiver: str) -> dict[str, dict[str, Any]]:
    return JMS_VALUES if "qpid_jms" in (sender, receiver) else OTHER_VALUES


def bodies_between(sender: str, receiver: str) -> list[dict[str, Any]]:
    bodies: list[dict[str, Any]] = [{"data": "00010203fdfeff"}, {"value": {"string": "grüße"}}]
    if receiver == "qpid_jms" and sender != "qpid_jms":
        return bodies  # other bodies are objects to JMS, unless its own annotation names their type
    items = [{"int": 1}, {"string": "two"}, {"double": 3.0}]
    bodies += [{"sequence": items}, {"value": {"map": [[{"string": "key"}, {"long": 2**40}]]}}]
    if sender != "qpid_jms":
        bodies += [{"value": {"list": items}}, {"value": {"binary": "00ff"}}, {"value": {"null": None}}, {"data": ""}]
    return bodies


def body_as_seen(body: dict[str, Any], by: str) -> dict[str, Any]:
    ((kind, value),) = body.items()
    if kind == "data":
        return body
    if kind == "sequence":
        return {"sequence": [as_seen(item, by) for item in value]}
    return {"value": as_seen(value, by)}
