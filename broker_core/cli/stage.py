"""`penstock stage …`"""

from __future__ import annotations

import argparse

from . import calls, show

_LIST = {
    "stage": "stage",
    "queues": "queues",
    "attempts": "attempts",
    "messages": "messages",
    "bytes": "bytes",
    "age": "age, s",
}


def list_all(given: argparse.Namespace) -> int:
    """Run `penstock stage list`."""
    with calls.broker(given) as broker:
        stages = broker.call("stage.list")["stages"]
    empty = "nothing waits for a publish: no write is under way, and none was left behind"
    return show.listed(given, stages, _LIST, empty=empty)


def discard(given: argparse.Namespace) -> int:
    """Run `penstock stage discard`."""
    with calls.broker(given) as broker:
        answer = broker.call("stage.discard", write=given.name, timeout_s=calls.LONG_S)
    return show.answer(
        given, answer, f"{show.counted(answer['discarded'], 'stage')} of {given.name} discarded; if its job still runs, it fails"
    )
