"""`penstock status`, `penstock journal` and `penstock archive`"""

from __future__ import annotations

import argparse
from datetime import datetime, timezone
from typing import Any

from . import broker_totals, calls, show

_WAITING = show.columns("queue", "id", "deleted", unrecorded="messages", unrecordedBytes="bytes", lag="lag, s", error="error")


def status(args: argparse.Namespace) -> int:
    with broker_totals.brokers(args) as brokers:
        answers = broker_totals.of_each(brokers, "broker.status")
    if args.json:
        show.print_json(answers if len(answers) > 1 else next(iter(answers.values())))
        return 0
    for url, answer in answers.items():
        if len(answers) > 1:
            print(f"--- {url}")
        _show(answer)
    return 0


def _show(answer: dict[str, Any]) -> None:
    copy, alarms = answer.pop("copy"), answer.pop("alarms")
    copied = {"copy": "none"} if copy is None else {f"copy {name}": value for name, value in copy.items()}
    started = datetime.fromtimestamp(answer.pop("startedAt") / 1e6, timezone.utc)
    show.print_facts({**answer, "startedAt": started, **copied})
    print()
    rows = [{**alarm, "since": show.moment(alarm["since"])} for alarm in alarms]
    columns = {"name": "alarm", "queue": "queue", "since": "since", "text": "text"}
    show.print_table(rows, columns, empty="no alarms")


def journal(args: argparse.Namespace) -> int:
    answer = calls.ask(args, "broker.journal")
    if args.json:
        show.print_json(answer)
        return 0
    segments, queues, oldest = answer.pop("segments"), answer.pop("queues"), answer.pop("oldest")
    show.print_facts({**answer, "segments": len(segments), "oldest needed": show.pinned_by(oldest)})
    print()
    show.print_table(queues, {"queue": "queue", "neededBytes": "needed bytes"}, empty="no queue needs the journal")
    print()
    columns = {"begin": "begin", "end": "end", "bytes": "bytes", "neededBytes": "needed bytes", "kept": "kept because of"}
    show.print_table(segments, columns, empty="no segments")
    return 0


def archive(args: argparse.Namespace) -> int:
    with broker_totals.brokers(args) as brokers:
        answers = broker_totals.of_each(brokers, "archive.status")
    answer = next(iter(answers.values()))
    if len(answers) > 1:
        waiting = broker_totals.by_queue({url: answer["queues"] for url, answer in answers.items()})
        answer = {**broker_totals.added(answers), "queues": waiting}
    if args.json:
        show.print_json(answer)
        return 0
    queues = answer.pop("queues")
    show.print_facts(answer)
    show.print_table(queues, _WAITING, empty="every settled message is recorded")
    return 0
