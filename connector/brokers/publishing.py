"""The publish of a write over several brokers: each publishes its part once, and a repetition finishes what is missing.

All parts are staged and durable before anything is published. The first broker's publish decides: it keeps with the write's key
which attempts belong to the write at each broker. The others follow. Who dies in between leaves a write that is decided and not
finished: a repetition finds that out by the key, stages nothing, and publishes the stages that are there. So the rows of a
repetition need not fall to the same brokers, and no row is sent twice or left out. Where the stages of a part are gone, it is an
error, or with `failOnDataLoss=false` the write counts as published without them.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from ...broker_core.client.flight import Client
from ...broker_core.errors import DataLoss, InvalidOption, PenstockError, StageNotFound
from ..identity import identity_of
from . import decision
from .spread import Spread

log = logging.getLogger("penstock")

PUBLISH_S = 120.0  # how long each publish is asked for again: all tasks' work hangs on it


class Publishing:
    """Publish of one write, or of its repetition. `key` is None for a write that nobody can repeat.

    `fails` with a part that is gone, or goes on without it."""

    def __init__(
        self, spread: Spread, key: dict[str, Any] | None, query: str | None, batch: int | None, *, fails: bool = True
    ) -> None:
        self._spread, self._key, self._fails = spread, key, fails
        self._fields = {"key": key, "query": query, "queryBatch": batch}

    def publish(self, write: str, attempts: Mapping[str, Sequence[int]], *, told: bool = False) -> None:
        """Publish these attempts at each broker, or finish the write that has been decided before; `told` says that it was.

        Raises PenstockError."""
        if self._key is None:
            self._publish_all(write, attempts, None)
            return
        decided = self._decided()
        if decided is None and told:
            raise DataLoss(
                "a broker has answered that this write was published before, and does not know it now: its data directory was"
                " restored from an older state. Nothing was published; write the data again"
            )
        if decided is None:
            text = decision.written(write, attempts)
            first, *others = self._spread.ids
            if not self._publish(first, write, attempts[first], text):
                self._publish_all(write, {broker: attempts[broker] for broker in others}, text)
                return
            decided = self._decided()  # by another driver, meanwhile; or by this publish, whose answer was lost
        if decided:
            self._finish(decided, write)
        for broker in self._spread.ids:
            # A repetition: the broker gives back what was read for it and never sent. Ours is no such, if it was decided.
            if not decided or decision.read(decided).write != write:
                self._publish(broker, write, [], None)

    def give_up(self, write: str, timeout_s: float) -> None:
        """Discard a write with a key, after Spark's abort. If the first broker has published its part, or does not answer, the
        others' parts stay: a repetition needs them. Errors are ignored."""
        assert self._key is not None
        first, *others = self._spread.ids
        with suppress(PenstockError), self._spread.client(first) as client:
            # First this: a publish that is still under way there decides nothing afterwards.
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
                    self._spread.discard_at(broker, write)  # what killed attempts may have left
            except PenstockError as error:
                raise type(error)(f"{self._missing(broker, done)}: {error}") from error

    def _missing(self, broker: str, done: list[str]) -> str:
        said = f"the part of this write for {self._spread.url(broker)} is not confirmed"
        if self._key is not None:
            return f"{said}: write it again, which finishes what is missing and sends nothing twice"
        if self._spread.settles:
            return f"{said}: settle these messages again; of several outcomes about one the last counts"
        if not done:
            return f"{said}, and nothing else of it was published: look into the queue there before you write the data again"
        return (
            f"{said}, and {', '.join(done)} published theirs: look into the queues before you write the data again (with txnAppId"
            " and txnVersion a repetition finishes what is missing)"
        )

    def _finish(self, text: str, write: str) -> None:
        """Publish what is missing of a write that was decided; `write` is the one that repeats it."""
        decided = decision.read(text)
        parts = {broker: mine for broker, mine in decided.parts.items() if mine or broker in self._spread.ids}
        _check_named(parts, self._spread.ids, self._fails)
        for broker, mine in parts.items():
            if broker not in self._spread.ids:
                continue
            try:
                if self._publish(broker, decided.write, mine, text) and mine:
                    self._check_same(broker, text)
            except StageNotFound as error:
                if not mine:
                    continue  # no rows are missing
                self._check_own(broker, decided.write)
                if self._fails:
                    raise DataLoss(
                        f"other brokers have published this write, and its part for {self._spread.url(broker)} is gone: it was"
                        " discarded, after a day or by an operator, or the write was begun by another user. Those rows are"
                        " missing; to go on without them write it again with failOnDataLoss=false, and then send them in a"
                        f" write of their own: {error}"
                    ) from error
                log.warning("a write goes on without its rows for %s, which are gone: %s", self._spread.url(broker), error)
                # Its number counts as done here, too; the text is what another repetition looks for.
                self._publish(broker, write, [], text)

    def _check_own(self, broker: str, write: str) -> None:
        """Raise InvalidOption where the stages of a write are there, as another user's: names of writes are by user."""
        for stage in self._call(broker, "stage.list", {})["stages"]:
            owner, _, name = stage["stage"].rpartition(":")
            if name == write:
                begun = f"by user {owner!r}: write it again by the same user" if owner else "without a user: do so again"
                raise InvalidOption(
                    f"the part of this write for {self._spread.url(broker)} is there and not published, and the write was begun"
                    f" {begun} (options userName and password), which finishes what is missing"
                )

    def _check_same(self, broker: str, text: str | None) -> None:
        """Check a broker that has published under the key before. Raises DataLoss if that was another driver's write.

        Two drivers may have decided at two brokers: the one that was replaced, and its replacement with one more broker."""
        if self._key is None or text is None:
            return
        known = self._call(broker, "stage.published", self._key)["elsewhere"]
        if known == text:
            return
        later = {**self._key, "number": self._key["number"] + 1}
        if known is None and self._call(broker, "stage.published", later)["published"]:
            return  # another write has followed, and its publish is the one that is known
        first = next(each for each in decision.read(text).parts if each in self._spread.ids)
        raise DataLoss(
            "two drivers have written this at the same time, with different brokers in the option url:"
            f" {self._spread.url(broker)} has published another one's part, and rows at {self._spread.url(first)} may be there"
            " twice: look into its queue, then write this once with that broker left out, which finishes the other one's write"
        )

    def _decided(self) -> str | None:
        """Return what a publish with this key said of the write's parts; an empty text if nothing; None: there is none."""
        assert self._key is not None
        found = None
        for broker in self._spread.ids:
            answer = self._call(broker, "stage.published", self._key)
            if answer["elsewhere"]:
                return str(answer["elsewhere"])
            if answer["published"]:
                found = ""
        return found

    def _publish(self, broker: str, write: str, attempts: Sequence[int], text: str | None) -> bool:
        """Publish at one broker; True if it was published before."""
        base = min(attempts, default=0)
        numbers = {"base": base, "attempts": [each - base for each in attempts]}
        request = {"write": write, **numbers, "elsewhere": text, **self._fields}
        return bool(self._call(broker, "stage.publish", request)["repeated"])

    def _call(self, broker: str, action: str, request: dict[str, Any]) -> dict[str, Any]:
        """Ask one broker, again while no answer comes."""
        return self._spread.asked(broker, action, request, PUBLISH_S)


def check_finished(client: Client, text: str | None, *, fails: bool = True) -> None:
    """Check a write that one broker alone is asked for, and that it has published, by what its publish said of other brokers.

    Raises InvalidOption if a part may be missing, unless not `fails`. Brokers publish in turn: those named before this one have
    published."""
    if text is not None:
        here, parts = identity_of(client).broker, decision.read(text).parts
        named = list(parts)
        after = named[named.index(here) + 1 :] if here in parts else named
        _check_named([broker for broker in after if parts[broker]], [here], fails)


def _check_named(brokers: Iterable[str], named: Sequence[str], fails: bool) -> None:
    for strange in (broker for broker in brokers if broker not in named):
        if fails:
            raise InvalidOption(
                f"this write was begun with broker {strange}, which the option url does not name now, and its part there may be"
                " missing: put that broker back, and write it again; if it is gone for good, failOnDataLoss=false goes on"
                " without that part"
            )
        log.warning("a write goes on without its part at broker %s, which the option url does not name", strange)
