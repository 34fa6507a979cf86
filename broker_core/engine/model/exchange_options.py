"""Types and options of exchanges. Defaults are not stored."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...errors import InvalidRequest
from ...similar import suggestion
from .names import NODE_NAME, is_node_name

TYPES = ("direct", "fanout", "topic", "headers")
#: name → allowed values, the default first; None: the name of a queue or an exchange.
OPTIONS: dict[str, tuple[str, ...] | None] = {
    "unroutable": ("refuse", "drop", "alternate"),  # treatment of a message without a matching binding
    "alternate": None,  # target of these messages
    "lifetime": ("permanent", "link", "unused"),
}


def checked(kind: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return the options that differ from their defaults. Raises InvalidRequest."""
    if kind not in TYPES:
        raise InvalidRequest(f"type {kind!r:.80} is not known of exchanges; known are {', '.join(TYPES)}")
    values = {}
    for name, value in options.items():
        if name not in OPTIONS:
            meant = suggestion(name, OPTIONS)
            raise InvalidRequest(f"option {name!r:.80} is not known of exchanges{meant}; known are {', '.join(OPTIONS)}")
        if value is None:
            continue
        allowed = OPTIONS[name]
        if allowed is not None and value not in allowed:
            raise InvalidRequest(f"option {name!r}: {value!r:.80} is not one of {', '.join(allowed)}")
        if allowed is None and not is_node_name(value):
            raise InvalidRequest(f"option {name!r}: {value!r:.80} is not the name of a queue or an exchange, {NODE_NAME}")
        values[name] = value
    has_alternate = "alternate" in values
    default = "alternate" if has_alternate else "refuse"
    unroutable = values.get("unroutable", default)
    if unroutable == "alternate" and not has_alternate:
        raise InvalidRequest(
            "option 'unroutable': 'alternate' needs the option 'alternate', the name of the queue or exchange that "
            "gets such messages"
        )
    if unroutable != "alternate" and has_alternate:
        raise InvalidRequest(f"option 'unroutable': {unroutable!r} leaves nothing for the alternate; leave one of them out")
    defaults = {"unroutable": default, "lifetime": "permanent"}
    return {name: value for name, value in values.items() if value != defaults.get(name)}
