"""`penstock lease …`"""

from __future__ import annotations

import argparse

from . import broker_totals, calls, show

_LIST = show.columns("lease", "query", "queue", "stage", "batch", "messages", "finished", "epoch", renewed="renewed, s ago")


def list_all(args: argparse.Namespace) -> int:
    with broker_totals.brokers(args) as brokers:
        lists = broker_totals.of_each(brokers, "lease.list")
    at = len(lists) > 1
    leases = [lease | ({"broker": url} if at else {}) for url, answer in lists.items() for lease in answer["leases"]]
    columns = _LIST | ({"broker": "broker"} if at else {})
    return show.listed(args, leases, columns, empty="no leases: no Spark query has read from a queue yet")


def release(args: argparse.Namespace) -> int:
    answer = calls.ask_long(args, f"releasing {args.name}", "lease.release", lease=args.name, how=args.how)
    done = "settled" if args.how == "settle" else "returned"
    return show.answer(args, answer, f"{show.counted(answer['messages'], 'message')} of lease {args.name} {done}")


def settle(args: argparse.Namespace) -> int:
    asked = {"sequence": args.sequence, "outcome": args.outcome, "error": args.error}
    answer = calls.ask(args, "lease.settleRow", lease=args.name, **asked)
    text = f"message {answer['sequence']:,} is {args.outcome}; if the query of lease {args.name} runs, start it again"
    return show.answer(args, answer, text)


def delete(args: argparse.Namespace) -> int:
    answer = calls.ask(args, "lease.delete", lease=args.name)
    return show.answer(args, answer, f"lease {args.name} is deleted")
