"""`lease.advance`: settle finished batches and acquire the next one, perhaps from a selector's matches."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import NamedTuple

from ..engine import commands as c
from ..selectors import Selector, parse
from ..service import matching
from ..service.bitmaps import View
from ..service.broker import BrokerService


class Advanced(NamedTuple):
    """`is_unfinished`: no message matched, and the search is incomplete."""

    leased: c.LeasedBatch
    is_unfinished: bool = False


def advance(
    service: BrokerService,
    enter: c.EnterLease,
    finish: c.FinishBatches,
    wanted: c.AcquireBatch,
    wait_s: float,
    gone: Callable[[], bool],
) -> Advanced:
    """Wait up to `wait_s` for messages. If necessary, first evaluate the selector, for `matching.LOOK_S` at most.

    Acquires nothing for a caller that is `gone`: a lease that a dead planner begins would refuse the next planner.
    """
    now = time.monotonic()
    deadline, end = now + wait_s, now + matching.LOOK_S
    selector = None if wanted.selector is None else parse(wanted.selector)
    seen = service.arrivals.count
    view = _prepared(service, wanted, selector)
    if gone():
        return Advanced(c.LeasedBatch(None, wanted.finished))
    leased = service.submit(enter, finish, replace(wanted, matching=view))
    while leased.batch == wanted.finished:
        if selector is not None and leased.unevaluated is not None:
            # The known matches are not for this lease: other holders have their groups, or they were returned unread.
            if time.monotonic() > end:
                return Advanced(leased, is_unfinished=True)
            while service.matching.look_further(wanted.queue, selector, leased.unevaluated, view, chunks=matching.LEASE_CHUNKS):
                pass
        elif service.arrivals.wait(seen, deadline - time.monotonic()):
            seen = service.arrivals.count
            view = _prepared(service, wanted, selector)
        else:
            break
        if gone():
            break
        leased = service.submit(
            replace(enter, epoch=leased.epoch, keep_timeout=False, waiting=leased.epoch is None), replace(wanted, matching=view)
        )
    return Advanced(leased)


def _prepared(service: BrokerService, wanted: c.AcquireBatch, selector: Selector | None) -> View | None:
    if selector is None:
        return None
    return service.matching.prepared(wanted.queue, selector, wanted.messages, wanted.max_bytes, wanted.until)
