"""`penstock trace`"""

from __future__ import annotations

import argparse
from collections.abc import Iterator, Sequence
from typing import Any

from ..actions.histories import histories
from ..client.flight import Client
from ..errors import MessageNotFound
from . import broker_totals, show
from .main import Failed, UsageError

_PER_CALL = 1_000  # stays in one answer, at most
_TIME_WIDTH = len("2026-11-28 12:00:00.000")
_NAMES = {"messageId": "message", "correlationId": "correlation id", "subject": "subject"}


def run(args: argparse.Namespace) -> int:
    _check(args)
    with broker_totals.brokers(args) as brokers, show.waiting("searching", quiet=args.json):
        search = _SearchOfBrokers(brokers, args.count)
        if args.sequence is None:
            wanted = {"id": args.id, "queue": args.queue, "selector": args.where}
            stays = search.stays(brokers, wanted)
        else:
            stays = search.of_sequence(args.queue, args.sequence)
    messages = histories(stays)
    if not messages:
        show.notes(search.hints)
        raise Failed(f"no message {_description(args)} is in the queues or in their archive")
    if args.json:
        show.print_json(messages)
    else:
        for number, message in enumerate(messages):
            if number:
                print()
            _show(message)
    show.notes(search.hints)
    return 0


def _check(args: argparse.Namespace) -> None:
    ways = [args.id is not None, args.sequence is not None, args.where is not None]
    if sum(ways) != 1:
        raise UsageError("name the message in one way: by an ID, by --sequence N --queue NAME, or by --where SELECTOR")
    if args.sequence is not None and args.queue is None:
        raise UsageError("--sequence needs --queue NAME: each queue numbers its messages on its own")


def _description(args: argparse.Namespace) -> str:
    if args.id is not None:
        return f"with the message id or correlation id {args.id!r}"
    return f"that matches {args.where!r}" if args.where is not None else f"{args.sequence:,} of queue {args.queue!r}"


class _SearchOfBrokers:
    """The search at several brokers."""

    def __init__(self, brokers: Sequence[Client], count: int) -> None:
        self._brokers, self._count, self._left = brokers, count, count
        self.hints: list[str] = []

    def stays(self, brokers: Sequence[Client], wanted: dict[str, Any]) -> list[dict[str, Any]]:
        return [stay for broker in brokers for stay in self._of_broker(broker, wanted)]

    def of_sequence(self, queue: str, sequence: int) -> list[dict[str, Any]]:
        """Each broker has its own sequence numbers. Other brokers are asked for the message ids."""
        stays, others, missing = list[dict[str, Any]](), list[Client](), None
        for broker in self._brokers:
            try:
                stays += self._of_broker(broker, {"queue": queue, "sequence": sequence})
            except MessageNotFound as error:
                others.append(broker)
                missing = error
        if not stays and missing is not None:
            raise missing
        for name in dict.fromkeys(stay["messageId"] for stay in stays if "messageId" in stay):
            stays += [stay for stay in self.stays(others, {"id": name}) if stay.get("messageId") == name]
        return stays

    def _of_broker(self, broker: Client, wanted: dict[str, Any]) -> Iterator[dict[str, Any]]:
        place = None
        while True:
            if self._left <= 0:
                self._hint(f"only {self._count:,} places of messages are shown: raise --count")
                return
            answer = broker.call("message.trace", **wanted, count=min(self._left, _PER_CALL), resume=place)
            for hint in answer.get("hints", ()):
                self._hint(hint)
            for message in answer["messages"]:
                for stay in message["stays"]:
                    self._left -= 1
                    yield {**stay, "broker": broker.url} if len(self._brokers) > 1 else stay
            place = answer["next"]
            if place is None:
                return

    def _hint(self, text: str) -> None:
        if text not in self.hints:
            self.hints.append(text)


def _show(message: dict[str, Any]) -> None:
    ids = [f"{name} {show.printable(message[key])}" for key, name in _NAMES.items() if key in message]
    print(", ".join(ids) or "message without an id")
    print(show.printable(message["where"]))
    print(f"{'time (UTC)':<{_TIME_WIDTH}}  event")
    for event in message["events"]:
        time = "–" if event["time"] is None else event["time"][:_TIME_WIDTH].replace("T", " ")
        at = f", at {event['broker']}" if "broker" in event else ""
        print(f"{time:<{_TIME_WIDTH}}  {show.printable(event['text'])}{at}")
