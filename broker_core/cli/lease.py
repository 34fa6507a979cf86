"""`penstock lease …`"""

from __future__ import annotations

import argparse

from . import calls, several, show

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


def list_all(given: argparse.Namespace) -> int:
    """Run `penstock lease list`."""
    with several.brokers(given) as brokers:
        lists = several.of_each(brokers, "lease.list")
    at = len(lists) > 1
    leases = [{**lease, **({"broker": url} if at else {})} for url, answer in lists.items() for lease in answer["leases"]]
    columns = _LIST | ({"broker": "broker"} if at else {})
    return show.listed(given, leases, columns, empty="no leases: no Spark query has taken from a queue yet")


def release(given: argparse.Namespace) -> int:
    """Run `penstock lease release`."""
    with calls.broker(given) as broker, show.waiting(f"releasing {given.name}", quiet=given.json):
        answer = broker.call("lease.release", lease=given.name, how=given.how, timeout_s=calls.LONG_S)
    done = "settled" if given.how == "settle" else "given back"
    return show.answer(given, answer, f"{show.counted(answer['messages'], 'message')} of lease {given.name} {done}")


def settle(given: argparse.Namespace) -> int:
    """Run `penstock lease settle`."""
    with calls.broker(given) as broker:
        answer = broker.call(
            "lease.settleRow", lease=given.name, sequence=given.sequence, outcome=given.outcome, error=given.error
        )
    said = f"message {answer['sequence']:,} is {given.outcome}; if the query of lease {given.name} runs, start it again"
    return show.answer(given, answer, said)


def delete(given: argparse.Namespace) -> int:
    """Run `penstock lease delete`."""
    with calls.broker(given) as broker:
        answer = broker.call("lease.delete", lease=given.name)
    return show.answer(given, answer, f"lease {given.name} is deleted")
