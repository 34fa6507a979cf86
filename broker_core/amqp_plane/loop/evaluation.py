"""Selectors of links, evaluated on a thread of their own where nobody has looked yet: the loop never waits for the disk.

A link that came to such a place awaits it, and keeps its turn (see `interest`); the chunk that it needs is evaluated once for all
that wait with the same selector; then they look again, and see how far that brings them. Chunks of all queues stand in one line,
so that a large one that is cold keeps nobody else from his for longer than a chunk takes.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor

from ... import errors
from ...selectors import Selector
from ...service.matching import SelectorMatcher
from .parties import MessageReceiver

log = logging.getLogger("penstock.amqp")

_Key = tuple[str, str]  # queue, selector


class SelectorEvaluation:
    """Evaluation of selectors, for the loop's thread. What waits is bounded by the links that there are."""

    def __init__(
        self,
        matcher: SelectorMatcher,
        loop: asyncio.AbstractEventLoop,
        evaluated: Callable[[Iterable[MessageReceiver], errors.PenstockError | None], None],
    ) -> None:
        """`evaluated` is called in the loop's thread, for the links that waited, with the error of a failed evaluation."""
        self._matcher, self._loop, self._evaluated = matcher, loop, evaluated
        self._waiting: dict[_Key, dict[MessageReceiver, None]] = {}
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="penstock-selecting")

    def __bool__(self) -> bool:
        """Say whether anything is being evaluated."""
        return bool(self._waiting)

    def look_further(self, link: MessageReceiver, block: int) -> None:
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
        except Exception as error:  # a mistake of ours: these links cannot go on, and everybody else can
            log.exception("the selector %r could not be evaluated", key[1])
            failure = errors.InvalidRequest(f"the selector {key[1]!r:.200} could not be evaluated: {error}")
        try:
            self._loop.call_soon_threadsafe(self._looked, key, failure)
        except RuntimeError:  # the loop is closed: the plane has stopped
            log.debug("a selector was evaluated after the loop has closed")

    def _looked(self, key: _Key, failure: errors.PenstockError | None) -> None:
        self._evaluated(self._waiting.pop(key), failure)

    def close(self) -> None:
        """Stop: nothing is evaluated any more."""
        self._thread.shutdown(wait=False, cancel_futures=True)
