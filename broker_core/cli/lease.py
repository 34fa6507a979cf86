"""`penstock lease …`"""

from __future__ import annotations

import argparse

from . import broker_totals, calls, show

_LIST = {
    "lease": "lease",
    "queue": "queue",
    "stage": "stage",
    "batch": "batch",
    "messages": "messages",
    "finished": "finished",
    "epoch": "epoch",
    "renewed": "renewed, s ago",
}


def list_all(args: argparse.Namespace) -> int:
    with broker_totals.brokers(args) as brokers:
        lists = broker_totals.of_each(brokers, "lease.list")
    at = len(lists) > 1
    leases = [{**lease, **({"broker": url} if at else {})} for url, answer in lists.items() for lease in answer["leases"]]
    columns = _LIST | ({"broker": "broker"} if at else {})
    return show.listed(args, leases, columns, empty="no leases: no Spark query has read from a queue yet")


def release(args: argparse.Namespace) -> int:
    with calls.broker(args) as broker, show.waiting(f"releasing {args.name}", quiet=args.json):
        answer = broker.call("lease.release", lease=args.name, how=args.how, timeout_s=calls.LONG_S)
    done = "settled" if args.how == "settle" else "returned"
    return show.answer(args, answer, f"{show.counted(answer['messages'], 'message')} of lease {args.name} {done}")


def settle(args: argparse.Namespace) -> int:
    with calls.broker(args) as broker:
        answer = broker.call("lease.settleRow", lease=args.name, sequence=args.sequence, outcome=args.outcome, error=args.error)
    text = f"message {answer['sequence']:,} is {args.outcome}; if the query of lease {args.name} runs, start it again"
    return show.answer(args, answer, text)


def delete(args: argparse.Namespace) -> int:
    with calls.broker(args) as broker:
        answer = broker.call("lease.delete", lease=args.name)
    return show.answer(args, answer, f"lease {args.name} is deleted")
