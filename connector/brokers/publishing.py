"""The publish of a write over several brokers: each broker publishes its part once, and a repetition publishes missing parts.

All parts are staged and durable before the first is published. The publish at the first broker decides the write: with the
write's key, the broker stores the attempts at each broker. The other brokers follow. A driver that dies in between leaves a
decided, incomplete write. Its repetition finds the decision by the key, stages nothing, and publishes the existing stages. So no
row is sent twice or left out, even if the rows of the repetition would fall to other brokers.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...broker_core.client.flight import Client
from ...broker_core.errors import DataLoss, InvalidOption, PenstockError, StageNotFound
from ..backoff import PUBLISH_S
from ..identity import identity_of
from . import decision
from .spread import Spread

log = logging.getLogger("penstock")


class Publishing:
    """A write that cannot be repeated has no `key`."""

    def __init__(
        self, spread: Spread, key: dict[str, Any] | None, query: str | None, batch: int | None, *, fail_on_data_loss: bool = True
    ) -> None:
        self._spread, self._key, self._fail_on_data_loss = spread, key, fail_on_data_loss
        self._fields = {"key": key, "query": query, "queryBatch": batch}

    def publish(self, write: str, attempts: Mapping[str, Sequence[int]], *, is_repetition: bool = False) -> None:
        """Publish these attempts, or finish a write that was decided before. `is_repetition`: a task has found such a write."""
        if self._key is None:
            self._publish_all(write, attempts, None)
            return
        decided = self._decided()
        if decided is None and is_repetition:
            raise DataLoss(
                "a broker has answered that this write was published before, and has no record of it now: its data directory was"
                " restored from an older state. Nothing was published; write the data again"
            )
        if decided is None:
            text = decision.written(write, attempts)
            first, *others = self._spread.ids
            if not self._publish(first, write, attempts[first], text):
                self._publish_all(write, {broker: attempts[broker] for broker in others}, text)
                return
            decided = self._decided()  # by another driver, or by this publish, whose answer was lost
        if decided:
            self._finish(decided, write)
        for broker in self._spread.ids:
            # The broker gives back messages that were read for a repetition and never sent. Not if this write was decided.
            if not decided or decision.read(decided).write != write:
                self._publish(broker, write, [], None)

    def give_up(self, write: str, timeout_s: float) -> None:
        """Discard a write with a key. Errors are ignored.

        If the first broker has published its part, or does not answer, the other parts stay for a repetition.
        """
        assert self._key is not None
        first, *others = self._spread.ids
        with suppress(PenstockError), self._spread.client(first) as client:
            # First, so that a publish under way there decides nothing afterwards.
            client.call("stage.discard", write=write, timeout_s=timeout_s)
            decided = client.call("stage.published", **self._key, timeout_s=timeout_s)["elsewhere"]
            if decided and decision.read(decided).write == write:
                return
            for broker in others:
                self._spread.discard_at(broker, write, timeout_s=timeout_s)

    def _publish_all(self, write: str, attempts: Mapping[str, Sequence[int]], text: str | None) -> None:
        done: list[str] = []
        for broker, mine in attempts.items():
            try:
                if mine or self._key is not None:
                    if self._publish(broker, write, mine, text):
                        self._check_same(broker, text)
                    done.append(self._spread.url(broker))
                else:
                    self._spread.discard_at(broker, write)
            except PenstockError as error:
                raise type(error)(f"{self._missing(broker, done)}: {error}") from error

    def _missing(self, broker: str, done: list[str]) -> str:
        text = f"the part of this write for {self._spread.url(broker)} is not confirmed"
        if self._key is not None:
            return f"{text}: write it again, which publishes missing parts and sends nothing twice"
        if self._spread.settles:
            return f"{text}: settle these messages again; of several outcomes about one the last counts"
        if not done:
            return f"{text}, and nothing else of it was published: look into the queue there before you write the data again"
        return (
            f"{text}, and {', '.join(done)} published theirs: look into the queues before you write the data again (with txnAppId"
            " and txnVersion a repetition publishes missing parts)"
        )

    def _finish(self, text: str, write: str) -> None:
        """`write` is the repetition."""
        decided = decision.read(text)
        parts = {broker: mine for broker, mine in decided.parts.items() if mine or broker in self._spread.ids}
        _check_named(parts, self._spread.ids, self._fail_on_data_loss)
        for broker, mine in parts.items():
            if broker not in self._spread.ids:
                continue
            try:
                if self._publish(broker, decided.write, mine, text) and mine:
                    self._check_same(broker, text)
            except StageNotFound as error:
                if not mine:
                    continue
                self._check_own(broker, decided.write)
                if self._fail_on_data_loss:
                    raise DataLoss(
                        f"other brokers have published this write, and its part for {self._spread.url(broker)} is gone: it was"
                        " discarded, after a day or by an operator, or the write was begun by another user. Those rows are"
                        " missing; to continue without them write it again with failOnDataLoss=false, and then send them in a"
                        f" write of their own: {error}"
                    ) from error
                log.warning("a write continues without its rows for %s, which are gone: %s", self._spread.url(broker), error)
                # The number also counts as done here, with the text that another repetition looks for.
                self._publish(broker, write, [], text)

    def _check_own(self, broker: str, write: str) -> None:
        """Another user may have begun the write: each user has its own names of writes."""
        for stage in self._call(broker, "stage.list", {})["stages"]:
            owner, _, name = stage["stage"].rpartition(":")
            if name == write:
                begun = f"by user {owner!r}: write it again by the same user" if owner else "without a user: do so again"
                raise InvalidOption(
                    f"the part of this write for {self._spread.url(broker)} is staged and not published, and the write was begun"
                    f" {begun} (options userName and password), which publishes missing parts"
                )

    def _check_same(self, broker: str, text: str | None) -> None:
        """A replaced driver, and its replacement with one more broker, may have decided at two brokers."""
        if self._key is None or text is None:
            return
        known = self._call(broker, "stage.published", self._key)["elsewhere"]
        if known == text:
            return
        later = {**self._key, "number": self._key["number"] + 1}
        if known is None and self._call(broker, "stage.published", later)["published"]:
            return  # another write has followed
        first = next(named for named in decision.read(text).parts if named in self._spread.ids)
        raise DataLoss(
            "two drivers have written this at the same time, with different brokers in the option url:"
            f" {self._spread.url(broker)} has published the part of another driver, and {self._spread.url(first)} may have rows"
            " twice: look into its queue, then write this once with that broker left out, which finishes the other write"
        )

    def _decided(self) -> str | None:
        """Return the decision of this key; empty for a publish without one, None without a publish."""
        assert self._key is not None
        text = None
        for broker in self._spread.ids:
            answer = self._call(broker, "stage.published", self._key)
            if answer["elsewhere"]:
                return str(answer["elsewhere"])
            if answer["published"]:
                text = ""
        return text

    def _publish(self, broker: str, write: str, attempts: Sequence[int], text: str | None) -> bool:
        request = {"write": write, **relative(attempts), "elsewhere": text, **self._fields}
        return bool(self._call(broker, "stage.publish", request)["repeated"])

    def _call(self, broker: str, action: str, request: dict[str, Any]) -> dict[str, Any]:
        return self._spread.asked(broker, action, request, PUBLISH_S)


def relative(attempts: Sequence[int]) -> dict[str, Any]:
    """Return the attempts as small differences, since Spark's numbers are large."""
    base = min(attempts, default=0)
    return {"base": base, "attempts": [attempt - base for attempt in attempts]}


def check_finished(client: Client, text: str | None, *, fail_on_data_loss: bool = True) -> None:
    """Check a write to a single broker, which has published it with this decision, for missing parts.

    Brokers publish in order, so only later brokers may lack their part.
    """
    if text is not None:
        here, parts = identity_of(client).broker, decision.read(text).parts
        named = list(parts)
        after = named[named.index(here) + 1 :] if here in parts else named
        _check_named([broker for broker in after if parts[broker]], [here], fail_on_data_loss)


def _check_named(brokers: Iterable[str], named: Sequence[str], fail_on_data_loss: bool) -> None:
    for strange in (broker for broker in brokers if broker not in named):
        if fail_on_data_loss:
            raise InvalidOption(
                f"this write was begun with broker {strange}, which the option url does not name now. Its part there may be"
                " missing: put that broker back, and write it again; if it is lost, failOnDataLoss=false continues without it"
            )
        log.warning("a write continues without its part at broker %s, which the option url does not name", strange)
