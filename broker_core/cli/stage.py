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


def list_all(args: argparse.Namespace) -> int:
    with calls.broker(args) as broker:
        stages = broker.call("stage.list")["stages"]
    empty = "no stages: no write is in progress, and no unfinished write has left stages"
    return show.listed(args, stages, _LIST, empty=empty)


def discard(args: argparse.Namespace) -> int:
    with calls.broker(args) as broker:
        answer = broker.call("stage.discard", write=args.name, timeout_s=calls.LONG_S)
    if not answer["discarded"]:
        raise StageNotFound(
            f"there is no stage {args.name!r}: it was discarded or published, or never existed; see `penstock stage list`"
        )
    return show.answer(
        args, answer, f"{show.counted(answer['discarded'], 'stage')} of {args.name} discarded; if its job still runs, it fails"
    )
