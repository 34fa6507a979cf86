"""`penstock archive`"""

from __future__ import annotations

import argparse

from . import broker_totals, show

_WAITING = show.columns("queue", "id", "deleted", unrecorded="messages", unrecordedBytes="bytes", lag="lag, s", error="error")


def status(args: argparse.Namespace) -> int:
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
