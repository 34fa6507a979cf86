"""Several brokers in one command: `--url a,b`.

Numbers are added, and lists and different texts are joined. Of ages, the largest is shown. Other different values are shown by
broker.
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

#: Numbers whose largest is shown. No message of any broker has the largest `nextSequence` or a higher number.
_LARGEST, _SMALLEST = frozenset(("lag", "retention", "nextSequence", "fill")), frozenset(("diskFullIn",))
#: Numbers whose absence means unlimited.
_ENDLESS = frozenset(("retention",))
#: Numbers that are identifiers.
_NAMES = frozenset(("id", "process"))
#: Objects whose values are added by name.
_OBJECTS = frozenset(("archive", "deadLetters", "refusedMessages", "droppedMessages"))


@contextmanager
def brokers(args: argparse.Namespace) -> Iterator[list[Client]]:
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
    return {broker.url: broker.call(action, **fields) for broker in brokers}


def queues(brokers: Iterable[Client]) -> list[dict[str, Any]]:
    """Sum the queues of several brokers by name."""
    lists = {url: answer["queues"] for url, answer in of_each(brokers, "queue.list").items()}
    return by_queue(lists) if len(lists) > 1 else next(iter(lists.values()))


def queue(brokers: Sequence[Client], name: str) -> dict[str, Any]:
    answers: dict[str, dict[str, Any]] = {}
    for broker in brokers:
        try:
            answers[broker.url] = broker.call("queue.stat", queue=name)
        except NotFound:
            if broker is brokers[-1] and not answers:
                raise
    return added(answers) if len(brokers) > 1 else answers[brokers[0].url]


def by_queue(lists: Mapping[str, list[dict[str, Any]]]) -> list[dict[str, Any]]:
    groups: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for url, rows in lists.items():
        for row in rows:  # a deleted queue may have the name of an existing one
            groups.setdefault((row["queue"], str(row["id"]) if row.get("deleted") else ""), {})[url] = row
    return [added(groups[key]) for key in sorted(groups)]


def added(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    return {"brokers": list(answers), **_together(answers)}


def _together(answers: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for answer in answers.values() for name in answer)
    return {name: _value(name, {url: answer[name] for url, answer in answers.items() if name in answer}) for name in names}


def _value(name: str, values: Mapping[str, Any]) -> Any:
    known = [value for value in values.values() if value is not None]
    if not known or (name in _ENDLESS and len(known) < len(values)):
        return None
    if name in _OBJECTS and all(isinstance(value, dict) for value in known):
        return _together({url: value for url, value in values.items() if value is not None})
    if all(isinstance(value, bool) for value in known):
        return any(known)
    if all(isinstance(value, (int, float)) for value in known) and name not in _NAMES:
        return max(known) if name in _LARGEST else min(known) if name in _SMALLEST else sum(known)
    if all(isinstance(value, list) for value in known):
        every = [item for value in known for item in value]
        return [item for at, item in enumerate(every) if item not in every[:at]]
    if all(value == known[0] for value in known):
        return known[0]
    return dict(values) if any(isinstance(value, dict) for value in known) else ", ".join(dict.fromkeys(map(str, known)))
