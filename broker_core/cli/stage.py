"""`penstock stage …`"""

from __future__ import annotations

import argparse

from ..errors import StageNotFound
from . import calls, show

_LIST = show.columns("stage", "queues", "attempts", "messages", "bytes", age="age, s")


def list_all(args: argparse.Namespace) -> int:
    stages = calls.ask(args, "stage.list")["stages"]
    empty = "no stages: no write is in progress, and no unfinished write has left stages"
    return show.listed(args, stages, _LIST, empty=empty)


def discard(args: argparse.Namespace) -> int:
    answer = calls.ask(args, "stage.discard", write=args.name, timeout_s=calls.LONG_S)
    if not answer["discarded"]:
        raise StageNotFound(
            f"there is no stage {args.name!r}: it was discarded or published, or never existed; see `penstock stage list`"
        )
    text = f"{show.counted(answer['discarded'], 'stage')} of {args.name} discarded; if its job still runs, it fails"
    return show.answer(args, answer, text)
