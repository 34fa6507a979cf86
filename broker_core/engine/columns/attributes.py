"""Attributes: the values that a queue needs from its messages, as columns of numbers.

They are read before a command reaches the engine, and journaled with the arrival, so recovery reads no payload.
"""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import Any

import numpy as np

from .limits import NEVER
from .series import Ints, narrowed


@dataclass(frozen=True)
class Coded:
    """A column of names. `codes`: by row, the index of its name plus one; 0: no name."""

    names: list[str]
    codes: Ints

    def take(self, rows: Any) -> Coded:
        return Coded(self.names, self.codes[rows])

    def used(self) -> Ints:
        """Return the codes that occur, ascending."""
        return np.flatnonzero(np.bincount(self.codes, minlength=1)[1:]) + 1


@dataclass(frozen=True)
class Attributes:
    """Columns by message. None: every message has the default."""

    priority: Ints | None = None  # the priority plus one; 0: not set
    expiry: Ints | None = None  # milliseconds since 1970; 0: never
    due: Ints | None = None  # milliseconds since 1970; 0: immediately
    group: Coded | None = None
    closes: Ints | None = None  # 1: the last of its group (group-sequence -1)
    key: Coded | None = None
    ids: Ints | None = None  # dtype S16: digests of typed message ids; zeros: no id

    def __bool__(self) -> bool:
        return any(value is not None for value in self.__dict__.values())

    def take(self, rows: Any) -> Attributes:
        present: dict[str, Any] = {name: value for name, value in vars(self).items() if value is not None}
        taken: dict[str, Any] = {k: v.take(rows) if isinstance(v, Coded) else v[rows] for k, v in present.items()}
        return Attributes(**taken)

    def journaled(self) -> dict[str, Any] | None:
        """Return the form of events; None if every message has the defaults."""
        if self is NO_ATTRIBUTES:
            return None
        stored: dict[str, Any] = {}
        for name in ("priority", "closes"):
            if (values := getattr(self, name)) is not None and values.any():
                stored[name] = narrowed(values)
        for name in ("expiry", "due"):
            if (times := getattr(self, name)) is not None and times.any():
                first = int(times.min(where=times > 0, initial=NEVER))
                stored[name] = {"from": first, "after": narrowed(np.where(times > 0, times - first + 1, 0))}
        for name in ("group", "key"):
            coded: Coded | None = getattr(self, name)
            if coded is not None:
                stored[name] = {"names": coded.names, "codes": narrowed(coded.codes)}
        if self.ids is not None:
            stored["ids"] = base64.b64encode(self.ids.tobytes()).decode()
        return stored or None

    @classmethod
    def of_journal(cls, stored: dict[str, Any] | None) -> Attributes:
        if stored is None:
            return NO_ATTRIBUTES
        values = dict(stored)
        for name in ("expiry", "due"):
            if name in values:
                after = values[name]["after"].astype(np.int64)
                values[name] = np.where(after > 0, after - 1 + values[name]["from"], 0)
        for name in ("group", "key"):
            if name in values:
                values[name] = Coded(values[name]["names"], values[name]["codes"])
        if "ids" in values:
            values["ids"] = np.frombuffer(base64.b64decode(values["ids"]), "S16")
        return cls(**values)


NO_ATTRIBUTES = Attributes()
