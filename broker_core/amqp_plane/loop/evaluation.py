"""Evaluation of selectors in a thread, so that the loop never waits for the disk.

A link whose selector is not evaluated for a chunk of messages awaits the evaluation, and keeps its place (see `interest`). Each
chunk is evaluated once for all links with the same selector. Then the links look again. The chunks of all queues wait in one
line, so a large cold queue delays the others by one chunk at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from ... import errors
from ...selectors import Selector
from ...service.matching import SelectorMatcher
from .parties import ReceiverLink

log = logging.getLogger("penstock.amqp")

_Key = tuple[str, str]  # queue, selector


class SelectorEvaluation:
    """Evaluation of selectors, for the loop's thread. The number of links bounds the waiting evaluations."""

    def __init__(
        self,
        matcher: SelectorMatcher,
        loop: asyncio.AbstractEventLoop,
        evaluated: Callable[[Iterable[ReceiverLink], errors.PenstockError | None], None],
    ) -> None:
        """`evaluated` is called in the loop's thread, for the links that waited, with the error of a failed evaluation."""
        self._matcher, self._loop, self._evaluated = matcher, loop, evaluated
        self._waiting: dict[_Key, dict[ReceiverLink, None]] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-selecting")

    def __bool__(self) -> bool:
        """Return True if an evaluation is under way."""
        return bool(self._waiting)

    def look_further(self, link: ReceiverLink, block: int) -> None:
        """Evaluate the next chunk of a block for the link's selector; then the link looks again."""
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
        except Exception as error:  # a bug: these links cannot continue, all others can
            log.exception("the selector %r could not be evaluated", key[1])
            failure = errors.InvalidRequest(f"the selector {key[1]!r:.200} could not be evaluated: {error}")
        try:
            self._loop.call_soon_threadsafe(self._looked, key, failure)
        except RuntimeError:  # the loop is closed: the plane has stopped
            log.debug("a selector was evaluated after the loop has closed")

    def _looked(self, key: _Key, failure: errors.PenstockError | None) -> None:
        self._evaluated(self._waiting.pop(key), failure)

    def close(self) -> None:
        """Stop all evaluations."""
        self._thread.shutdown(wait=False, cancel_futures=True)
