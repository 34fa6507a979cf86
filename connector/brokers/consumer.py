"""One query over several brokers: a consumer of each, and offsets by the brokers' ids (`brokers.offset`).

A trigger settles what is finished everywhere and takes from all brokers. Without limits they are asked side by side; with limits
one after another, each for what is left, and each trigger begins with another. A crash between two brokers leaves an unfinished
batch with those that were asked. These batches alone are then the next batch of Spark's, as with several queues.

Where there is nothing, all are asked to wait, side by side, each with its share of the limits. The first messages that come end
the trigger. The others go on waiting: what they answer is looked at by the triggers that follow, so nobody waits for a broker
that has nothing; and what they may still take is taken off the limits of these triggers. A broker that is away is waited for, or
with `failOnBrokerLoss=false` left out until it answers again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from itertools import zip_longest
from typing import Any, TypeVar

from pyspark.sql.datasource import InputPartition

from ...broker_core.errors import PenstockError, Unreachable, WrongOffset
from ..backoff import RECONNECT_S, Patience, is_loss
from ..options import Options
from ..stream.consumer import OneBroker
from ..stream.credit import Credit
from .identities import check_identities
from .member import Member, Poll
from .offset import BrokerOffsets, parse

log = logging.getLogger("penstock")

#: With failOnBrokerLoss=false a trigger waits for a broker so long: it goes on without one that answers later. A run that ends
#: waits for one that is busy, too.
HOLD_UP_S = 1.0
POLL_GRACE_S = 0.05  # an idle trigger waits for the answers a little longer than the brokers wait for messages

_Result = TypeVar("_Result")


class SeveralBrokers:
    """Consumer of the queues of the same names at several brokers. `make` makes the consumer of one."""

    def __init__(self, options: Options, make: Callable[[Options], OneBroker]) -> None:
        self._fails: bool = options["failOnBrokerLoss"]
        self._members = [Member(each, make) for each in options.each()]
        self._checked = 0  # members whose identities are compared
        self._answered: BrokerOffsets | None = None  # the last answer: who begins there has finished all there was
        self._ends = self._once = False
        self._named = options["lease"] is not None

    # --- Spark's calls -------------------------------------------------------------------------------------------------

    def fix_tail(self) -> None:
        """Remember the ends of the queues at each broker. One that is away is left out of this run."""
        self._ends = True
        self._identify()
        found = self._ask(self._members, lambda member: member.ask(lambda consumer: consumer.fix_tail()))
        for member in self._members:
            member.left_out = member not in found

    def advance(self, start: Mapping[str, Any], *, wait_ms: int, credit: Credit, once: bool = False) -> dict[str, Any]:
        """Settle up to `start` and acquire the next batch, from one or more brokers."""
        self._once = once
        known = self._enter(start)
        taken, settled = self._next(known, wait_ms if not self._ends else 0, credit)
        for member in self._present():
            if member in settled:
                member.settled = known.of(member.id)
        if not taken:
            self._answered = known
            return dict(start)
        names = {member.id for member in settled}
        held = {broker for broker in known.held if broker not in names} | {member.id for member in taken}
        mine = self._mine(known)
        parts = {broker: part for broker, part in known.parts.items() if mine(broker)}
        parts |= {member.id: part for member, part in taken.items()}
        self._answered = BrokerOffsets(known.turn + 1, tuple(sorted(held)), parts)
        return self._answered.to_json()

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        """Plan the tasks of the batches between two offsets, of all brokers that have one. Each of them is needed."""
        before, until = parse(start), self._enter(end)
        changed = {broker for broker, part in until.parts.items() if part != before.of(broker)}
        members = [member for member in self._present() if member.id in changed]
        missing = changed - {member.id for member in members}
        if missing:
            urls = ", ".join(member.url for member in self._members if member.identity is None)
            raise Unreachable(
                f"no broker answers at {urls}, and a batch that the query has begun holds messages of it: this one batch needs"
                " it, also with failOnBrokerLoss=false; start the query again when it is back"
            )
        self._settle([member for member in self._present() if member.id not in changed], until)
        planned = {member: _plan(member, before, until) for member in members}
        parts = [_patiently(member, answer, before, until) for member, answer in planned.items()]
        # In turn: Spark starts tasks in this order, and each broker's disk and network should have some to do from the beginning.
        return [part for turn in zip_longest(*parts) for part in turn if part is not None]

    def settle(self, end: Mapping[str, Any]) -> None:
        """Settle each broker up to its part of `end`."""
        finished = self._enter(end)
        self._settle(self._present(), finished)

    def counts(self) -> dict[str, Any]:
        """Return the counts of each queue, of all brokers together; of one that is away they are the last."""
        found: dict[str, dict[str, Any]] = {}
        away = []
        for member in self._members:
            for queue, counts in member.counts().items():
                if isinstance(counts, str):  # why a broker that is no Penstock cannot be reached
                    away.append(f"{member.url}: {counts}")
                elif counts:
                    found[queue] = added(found.get(queue, {}), counts)
        return {**found, "away": "; ".join(away)} if away else found

    def close(self) -> None:
        """Close the connections. Leases stay."""
        for member in self._members:
            member.close()

    # --- A trigger -----------------------------------------------------------------------------------------------------

    def _next(self, known: BrokerOffsets, wait_ms: int, credit: Credit) -> tuple[dict[Member, dict[str, Any]], set[Member]]:
        """Acquire the next batch; return each member's part of the offset after it, and the members that have settled."""
        settled: set[Member] = set()
        taken: dict[Member, dict[str, Any]] = {}
        free = self._free(known)
        fresh, self._answered = known != self._answered, None
        if fresh:
            for members in self._ordered(known, free):
                taken |= self._advance(known, members, settled, lambda: Credit(0, 0))
        if not taken:
            taken = self._polled(known, settled)
            if taken and not fresh:
                taken |= self._advance(known, free, settled, lambda: Credit(0, 0))
        if taken or credit.spent:
            return taken, settled
        for member in self._present():
            if member.poll is not None and member.away_since is None:
                credit.reserve(member.poll.credit)
        if not credit.spent:
            taken = self._take(known, self._free(known), settled, credit)
        if not taken and wait_ms:
            taken = self._wait(known, settled, wait_ms, credit)
        return taken, settled

    def _free(self, known: BrokerOffsets) -> list[Member]:
        """Return who can be asked, another one first each time."""
        free = [member for member in self._present() if member.may_be_asked]
        first = known.turn % max(1, len(free))
        return [*free[first:], *free[:first]]

    def _ordered(self, known: BrokerOffsets, free: list[Member]) -> list[list[Member]]:
        """Return who is asked side by side, list by list: the broker that refuses to begin a lease, if one does, comes first."""
        if known.parts or not self._named or len(free) < 2:
            return [free]
        found = self._ask(free, lambda member: member.ask(lambda consumer: consumer.standing()))
        first = min(found, key=lambda member: found[member], default=None)
        return [[member for member in found if member is first], [member for member in found if member is not first]]

    def _take(
        self, known: BrokerOffsets, members: list[Member], settled: set[Member], credit: Credit
    ) -> dict[Member, dict[str, Any]]:
        if not credit.limited:
            return self._advance(known, members, settled, lambda: Credit(None, None))
        credit.shared = True
        taken: dict[Member, dict[str, Any]] = {}
        for member in members:
            taken |= self._advance(known, [member], settled, lambda: credit)
        return taken

    def _advance(
        self, known: BrokerOffsets, members: Iterable[Member], settled: set[Member], credit: Callable[[], Credit]
    ) -> dict[Member, dict[str, Any]]:
        """Ask these side by side; return those that have a batch, with the offset after it."""
        answers = self._ask(members, lambda member: self._poll(member, known, 0, credit()))
        return self._found(known, answers, settled)

    def _poll(self, member: Member, known: BrokerOffsets, wait_ms: int, credit: Credit) -> Future[dict[str, Any]]:
        start, once = known.of(member.id), self._once
        answer = member.ask(lambda consumer: consumer.advance(start, wait_ms=wait_ms, credit=credit, once=once))
        member.poll = Poll(start, answer, credit)
        return answer

    def _found(
        self, known: BrokerOffsets, answers: Mapping[Member, dict[str, Any]], settled: set[Member]
    ) -> dict[Member, dict[str, Any]]:
        settled.update(answers)
        return {member: part for member, part in answers.items() if part != known.of(member.id)}

    def _polled(self, known: BrokerOffsets, settled: set[Member]) -> dict[Member, dict[str, Any]]:
        """Look at the answers of those that were asked to wait by an earlier trigger."""
        polls = {member: member.poll for member in self._present() if member.poll is not None}
        other = {member: poll.answer for member, poll in polls.items() if poll.start != known.of(member.id)}
        self._gather(other)  # after a batch was begun anew: what they acquired is unfinished, and found again
        ready = {member: poll.answer for member, poll in polls.items() if member not in other and poll.answer.done()}
        return self._found(known, self._gather(ready), settled)

    def _wait(self, known: BrokerOffsets, settled: set[Member], wait_ms: int, credit: Credit) -> dict[Member, dict[str, Any]]:
        """Let all wait that do not yet, each with its share of what is left; return what comes first."""
        members = self._present()
        asked = [member for member in members if member.may_be_asked and member.away_since is None]
        for member, share in zip(asked, credit.divided(len(asked)), strict=True):
            if not share.spent:
                self._poll(member, known, wait_ms, share)
        give_up = time.monotonic() + wait_ms / 1000 + POLL_GRACE_S
        while polls := {member: member.poll.answer for member in members if member.poll is not None}:
            wait(polls.values(), max(0.0, give_up - time.monotonic()), FIRST_COMPLETED)
            ready = {member: answer for member, answer in polls.items() if answer.done()}
            taken = self._found(known, self._gather(ready), settled)
            if taken or not ready:
                return taken
        return {}

    def _settle(self, members: Iterable[Member], known: BrokerOffsets) -> None:
        """Settle up to this offset. What is settled already is not asked again."""
        asked = [
            member
            for member in members
            if member.id in known.parts and member.settled != known.of(member.id) and member.may_be_asked
        ]

        def settle(member: Member) -> Future[None]:
            part = known.of(member.id)
            return member.ask(lambda consumer: consumer.settle(part))

        for member in self._ask(asked, settle):
            member.settled = known.of(member.id)

    # --- Asking --------------------------------------------------------------------------------------------------------

    def _ask(self, members: Iterable[Member], ask: Callable[[Member], Future[_Result]]) -> dict[Member, _Result]:
        """Ask these side by side; return who has answered in time, and what. Raises the first error that is no loss."""
        answers = {member: ask(member) for member in members}
        if answers:
            wait(answers.values(), None if self._fails else HOLD_UP_S)
        ends = self._ends or self._once
        while ends and (busy := [answer for member, answer in answers.items() if not answer.done() and member.is_busy]):
            wait(busy, HOLD_UP_S)  # no answer from anybody would end the run
        ready = {member: answer for member, answer in answers.items() if answer.done()}
        for member in answers:
            if member not in ready:
                self._lost(member, None)
        return self._gather(ready)

    def _gather(self, answers: Mapping[Member, Future[_Result]]) -> dict[Member, _Result]:
        """Wait for these and return their results; those that are away are left out. Raises the first other error."""
        found, failure = {}, None
        for member, answer in answers.items():
            try:
                found[member] = answer.result()
                self._back(member)
            except PenstockError as error:
                if self._fails or not is_loss(error):
                    failure = failure or error
                else:
                    self._lost(member, error)
            if member.poll is not None and member.poll.answer is answer:
                member.poll = None
        if failure is not None:
            raise failure
        return found

    def _lost(self, member: Member, error: PenstockError | None) -> None:
        if member.lost():
            why = f"nothing for {HOLD_UP_S:g} s" if error is None else str(error)
            log.warning("the query goes on without the broker at %s, and joins it again when it answers: %s", member.url, why)

    def _back(self, member: Member) -> None:
        away = member.found()
        if away is not None:
            log.info("the broker at %s answers again after %.1f s, and the query reads from it again", member.url, away)

    # --- Who they are --------------------------------------------------------------------------------------------------

    def _present(self) -> list[Member]:
        """Return those whose identity is known, away or not."""
        return [member for member in self._members if member.identity is not None]

    def _identify(self) -> None:
        """Ask all that have not said so yet which brokers they are."""
        unknown = [member for member in self._members if member.identity is None and member.may_be_asked]
        for member, identity in self._ask(unknown, Member.identify).items():
            member.identity = identity
        if self._checked != len(self._present()):
            self._checked = len(self._present())
            check_identities({member.url: member.identity for member in self._present() if member.identity is not None})

    def _enter(self, data: Mapping[str, Any]) -> BrokerOffsets:
        """Parse an offset. Raises WrongOffset for one that needs a broker which the option does not name."""
        known = parse(data)
        self._identify()
        present = {member.id for member in self._present()}
        gone = [broker for broker in known.parts if broker not in present]
        if gone and len(present) == len(self._members):
            check_gone(known, gone)
        return known

    def _mine(self, known: BrokerOffsets) -> Callable[[str], bool]:
        """Return a test for the brokers that stay in the offset: one that is away may be any of those that are missing."""
        present = {member.id for member in self._present()}
        complete = len(present) == len(self._members)
        return lambda broker: broker in present or not complete


def _plan(member: Member, before: BrokerOffsets, until: BrokerOffsets) -> Future[Sequence[InputPartition]]:
    start, end = before.of(member.id), until.of(member.id)
    return member.ask(lambda consumer: consumer.plan(start, end))


def _patiently(
    member: Member, answer: Future[Sequence[InputPartition]], before: BrokerOffsets, until: BrokerOffsets
) -> Sequence[InputPartition]:
    """Return the tasks; ask again for a while if the broker is away, since a batch that is begun needs it."""
    patience = Patience(RECONNECT_S)
    while True:
        try:
            return answer.result()
        except PenstockError as error:
            if not is_loss(error):
                raise
            patience.wait(error)
        answer = _plan(member, before, until)


def check_gone(known: BrokerOffsets, gone: list[str]) -> None:
    """Raise WrongOffset if a broker that is named no more holds a batch of the query, or if all are others."""
    held = next((broker for broker in gone if broker in known.held), None)
    if held is not None:
        raise WrongOffset(
            f"broker {held} holds a batch of this query, and the option url, or spool, does not name it any longer: put it back,"
            " let the query go on until a batch without messages of that broker is done, and take it out then"
        )
    if len(gone) == len(known.parts):
        raise WrongOffset(
            f"the option url names none of the brokers that the checkpoint belongs to ({', '.join(gone)}): point it at them, or"
            " start with a new checkpoint"
        )


def added(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Add the counts of a queue at two brokers; the oldest message is that of both."""
    found = dict(one)
    for name, value in other.items():
        if name == "oldestSeconds":
            ages = [age for age in (found.get(name), value) if age is not None]
            found[name] = max(ages, default=None)
        else:
            found[name] = found.get(name, 0) + value
    return found
