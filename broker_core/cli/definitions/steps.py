"""Steps of an import. All are known before the first request, so a malformed file changes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from ... import errors
from ...logs import counted
from ...security.users import Users

CREATED, EXISTS, REFUSED, LEFT_OUT = "created", "exists", "refused", "left out"


@dataclass(frozen=True)
class ImportStep:
    """One object of a file. It needs a request (`action`, `fields`) or an `edit` of the users file. Without both it cannot be
    created, for the reason in `notes`. Other notes name omitted parts of the object."""

    object: str
    notes: Sequence[str] = ()
    action: str | None = None
    fields: Mapping[str, Any] = field(default_factory=dict)
    edit: Callable[[Users], Users] | None = None


@dataclass(frozen=True)
class Result:
    """Result of a step."""

    result: str
    object: str
    notes: Sequence[str]

    def to_json(self) -> dict[str, Any]:
        return {"result": self.result, "object": self.object, "notes": list(self.notes)}


def refusal(step: ImportStep, error: errors.PenstockError) -> Result:
    """Raises an error that the next steps would also meet."""
    if error.fault != "caller" or isinstance(error, errors.Unauthenticated):
        raise error
    return Result(REFUSED, step.object, [str(error), *step.notes])


def edited(users: Users, steps: Sequence[ImportStep]) -> tuple[Users, list[Result]]:
    results = []
    for step in steps:
        assert step.edit is not None
        try:
            after = step.edit(users)
        except errors.PenstockError as error:
            results.append(refusal(step, error))
        else:
            results.append(Result(EXISTS if after == users else CREATED, step.object, step.notes))
            users = after
    return users, results


def declare_queue(name: str, kind: str, options: Mapping[str, Any], notes: Sequence[str] = ()) -> ImportStep:
    fields = {"queue": name, "type": kind, "options": dict(options)}
    return ImportStep(f"queue {name} ({_shown(kind, options)})", notes, "queue.declare", fields)


def declare_exchange(name: str, kind: str, options: Mapping[str, Any], notes: Sequence[str] = ()) -> ImportStep:
    fields = {"exchange": name, "type": kind, "options": dict(options)}
    return ImportStep(f"exchange {name} ({_shown(kind, options)})", notes, "exchange.declare", fields)


def _shown(kind: str, options: Mapping[str, Any]) -> str:
    return ", ".join([str(kind), *(f"{name}={value}" for name, value in options.items())])


def applied_note(count: int) -> str:
    """Return the note on a policy of another broker that applies to `count` nodes of the file."""
    later = "for later declarations add a table [[policies]] to the settings file"
    return f"applied to {counted(count, 'node')} of this file; {later}"


def bind(exchange: str, queue: str, notes: Sequence[str] = (), **fields: Any) -> ImportStep:
    key = f" with key {fields['key']}" if fields.get("key") else ""
    return ImportStep(
        f"binding {exchange} to {queue}{key}", notes, "exchange.bind", {"exchange": exchange, "queue": queue, **fields}
    )
