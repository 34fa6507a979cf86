"""Evaluation of selectors in a thread, so that the loop never waits for the disk.

Each chunk is evaluated once for all links with the same selector. The chunks of all queues wait in one line, so a large cold
queue delays the others by one chunk at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from ... import errors
from ...selectors import Selector
from ...service.matching import SelectorMatcher
from .effects import call
from .parties import ReceiverLink

log = logging.getLogger("penstock.amqp")

_Key = tuple[str, str]  # queue, selector


class SelectorEvaluation:
    """`evaluated` is called for the links that waited, with the error of a failed evaluation."""

    def __init__(
        self,
        matcher: SelectorMatcher,
        loop: asyncio.AbstractEventLoop,
        evaluated: Callable[[Iterable[ReceiverLink], errors.PenstockError | None], None],
    ) -> None:
        self._matcher, self._loop, self._evaluated = matcher, loop, evaluated
        self._waiting: dict[_Key, dict[ReceiverLink, None]] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-selecting")

    def look_further(self, link: ReceiverLink, block: int) -> None:
        """Evaluate the next chunk of a block for the link's selector."""
        assert link.selector is not None
        key = link.queue, link.selector.text
        waiting = self._waiting.get(key)
        if waiting is not None:
            waiting[link] = None
            return
        self._waiting[key] = {link: None}
        self._thread.submit(self._evaluate, key, link.selector, block)

    def _evaluate(self, key: _Key, selector: Selector, block: int) -> None:
        failure: errors.PenstockError | None = None
        try:
            self._matcher.look_further(key[0], selector, block)
        except errors.PenstockError as error:
            failure = error
        except Exception as error:  # a bug that concerns these links
            log.exception("the selector %r could not be evaluated", key[1])
            failure = errors.InvalidRequest(f"the selector {key[1]!r:.200} could not be evaluated: {error}")
        call(self._loop, partial(self._looked, key, failure))

    def _looked(self, key: _Key, failure: errors.PenstockError | None) -> None:
        self._evaluated(self._waiting.pop(key), failure)

    def close(self) -> None:
        self._thread.shutdown(wait=False, cancel_futures=True)
