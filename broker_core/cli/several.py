"""Several brokers at once: with `--url a,b` queues and archives are added up, and `status` shows one after another.

Numbers are added, and what stands in lists is put together. Of ages the largest tells. Texts that differ stand one after another,
and anything else that differs stands by broker.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

from ..client.flight import Client
from ..errors import NotFound
from . import calls, login
from .main import UsageError

#: Numbers that are not added. No message of any broker has the largest `nextSequence`, or a higher number.
_LARGEST, _SMALLEST = frozenset(("lag", "retention", "nextSequence")), frozenset(("diskFullIn",))
#: Numbers of which no value is the largest: nothing is removed, ever.
_ENDLESS = frozenset(("retention",))
#: Numbers that name something.
_NAMES = frozenset(("id", "process"))
#: Objects whose values are added by their names.
_OBJECTS = frozenset(("archive", "deadLetters"))


@contextmanager
def brokers(args: argparse.Namespace) -> Iterator[list[Client]]:
    """Connect to each broker of `--url`. Raises UsageError for a url that cannot be, or one broker under two names."""
    urls = [url.strip() for url in args.url.split(",")]
    for url in urls:
        calls.check_url(url)
    with ExitStack() as stack:
        credentials = login.credentials(args)
        clients = [stack.enter_context(calls.client(url, credentials)) for url in urls]
        if len(clients) > 1:
            _check(clients)
        yield clients


def _check(clients: list[Client]) -> None:
    names: dict[str, str] = {}
    for client in clients:
        broker = client.call("hello")["broker"]
        if broker in names:
            raise UsageError(f"--url names one broker twice: {names[broker]} and {client.url} are both broker {broker}")
        names[broker] = client.url


def of_each(brokers: Iterable[Client], action: str, **fields: Any) -> dict[str, dict[str, Any]]:
    """Return the answers to an action, by url."""
    return {broker.url: broker.call(action, **fields) for broker in brokers}


def queues(brokers: Iterable[Client]) -> list[dict[str, Any]]:
    """Return the queues of one broker; of several those of one name are added up, and `brokers` says where they are."""
    lists = {url: answer["queues"] for url, answer in of_each(brokers, "queue.list").items()}
    return by_queue(lists) if len(lists) > 1 else next(iter(lists.values()))


def queue(brokers: Sequence[Client], name: str) -> dict[str, Any]:
    """Return a queue of one broker, or of those that have it. Raises NotFound where none has."""
    found: dict[str, dict[str, Any]] = {}
    for broker in brokers:
        try:
            found[broker.url] = broker.call("queue.stat", queue=name)
        except NotFound:
            if broker is brokers[-1] and not found:
                raise
    return added(found) if len(brokers) > 1 else found[brokers[0].url]


def by_queue(lists: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    """Add up the queues of the same name; `lists` is by url."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for url, rows in lists.items():
        for row in rows:  # one that was deleted may have a namesake
            found.setdefault((row["queue"], str(row["id"]) if row.get("deleted") else ""), {})[url] = row
    return [added(found[name]) for name in sorted(found)]


def added(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Add up what brokers tell of one thing, by url; `brokers` says which."""
    return {"brokers": list(answers), **_together(answers)}


def _together(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for answer in answers.values() for name in answer)
    return {name: _value(name, {url: answer[name] for url, answer in answers.items() if name in answer}) for name in names}


def _value(name: str, values: Mapping[str, Any]) -> Any:
    there = [value for value in values.values() if value is not None]
    if not there or (name in _ENDLESS and len(there) < len(values)):
        return None
    if name in _OBJECTS and all(isinstance(value, dict) for value in there):
        return _together({url: value for url, value in values.items() if value is not None})
    if all(isinstance(value, bool) for value in there):
        return any(there)
    if all(isinstance(value, (int, float)) for value in there) and name not in _NAMES:
        return max(there) if name in _LARGEST else min(there) if name in _SMALLEST else sum(there)
    if all(isinstance(value, list) for value in there):
        every = [item for value in there for item in value]
        return [item for at, item in enumerate(every) if item not in every[:at]]
    if all(value == there[0] for value in there):
        return there[0]
    return dict(values) if any(isinstance(value, dict) for value in there) else ", ".join(dict.fromkeys(map(str, there)))
