"""`penstock stage …`"""

from __future__ import annotations

import argparse

from ..errors import StageNotFound
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
    if not answer["discarded"]:
        raise StageNotFound(
            f"there is no stage {given.name!r}: it was discarded, published, or never there; see `penstock stage list`"
        )
    return show.answer(
        given, answer, f"{show.counted(answer['discarded'], 'stage')} of {given.name} discarded; if its job still runs, it fails"
    )
