"""Values in the JSON of events and snapshots: row sets, arrays, bytes, and objects of these."""

from __future__ import annotations

import base64
from typing import Any

import numpy as np

from .rowset import RowSet
from .series import narrowed

_SIMPLE = (str, int, bool, list)


def to_json(value: Any) -> Any:
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
    return {key: from_json(item) for key, item in value["map"].items()}
