"""One query over several brokers: a consumer of each, and offsets by the brokers' ids.

Without limits all brokers are asked side by side. With limits they are asked one after another, each for the rest of the limits.
If there are no messages, all brokers are asked to wait, each with its share of the limits. The first messages end the trigger.
The other brokers continue to wait, and following triggers look at their answers. So no trigger waits for a broker without
messages. Their shares are subtracted from the limits of these triggers.

The query waits for a broker that is away, or with `failOnBrokerLoss=false` leaves it out until it answers again.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, wait
from functools import partial
from itertools import zip_longest
from typing import Any, TypeVar

from ...broker_core.errors import PenstockError, Unreachable, WrongOffset
from ..backoff import RECONNECT_S, Patience, is_loss
from ..identity import check_identities
from ..offset import BrokersOffset, parse_brokers
from ..options import Options
from ..spark_versions import InputPartition
from ..stream.credit import Credit
from ..stream.fan_out import FanOut, added_counts, no_credit, rotated
from ..stream.protocols import BrokerConsumer
from .member import Member, Poll

log = logging.getLogger("penstock")

#: Seconds that a trigger waits for a broker with failOnBrokerLoss=false. A run that ends waits longer for a busy broker.
HOLD_UP_S = 1.0
POLL_GRACE_S = 0.05  # an idle trigger waits a little longer than the brokers

_Result = TypeVar("_Result")
Taken = dict[Member, dict[str, Any]]


class BrokersConsumer(FanOut[BrokersOffset, Member, dict[str, Any]]):
    """Consumer of queues with the same names at several brokers."""

    def __init__(self, options: Options, make: Callable[[Options], BrokerConsumer]) -> None:
        self._fail_on_broker_loss: bool = options["failOnBrokerLoss"]
        self._members = [Member(broker, make) for broker in options.per_broker()]
        self._checked = 0
        self._ends = self._once = False
        self._has_lease_option = options["lease"] is not None

    # --- Spark's calls -------------------------------------------------------------------------------------------------

    def has_begun(self) -> bool:
        self._identify()
        return any(self._ask(self._present(), lambda _, consumer: consumer.has_begun()).values())

    def fix_tail(self) -> None:
        """A broker that is away is left out of this run."""
        self._ends = True
        self._identify()
        answered = self._ask(self._members, lambda _, consumer: consumer.fix_tail())
        for member in self._members:
            member.left_out = member not in answered

    def advance(self, start: Mapping[str, Any], *, wait_ms: int, credit: Credit, once: bool = False) -> dict[str, Any]:
        self._once = once
        known = self._enter(start)
        taken = self._next(known, credit, 0 if self._ends else wait_ms)
        if not taken:
            self._answered = known
            return dict(start)
        settled = {member.id for member in self._present() if member.settled == known.of(member.id)}
        held = {broker for broker in known.held if broker not in settled} | {member.id for member in taken}
        remaining = self._remaining(known)
        parts = {broker: part for broker, part in known.parts.items() if broker in remaining}
        parts |= {member.id: part for member, part in taken.items()}
        self._answered = BrokersOffset(known.rotation + 1, tuple(sorted(held)), parts)
        return self._answered.to_json()

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> list[InputPartition]:
        before, until = parse_brokers(start), self._enter(end)
        changed = {broker for broker, part in until.parts.items() if part != before.of(broker)}
        members = [member for member in self._present() if member.id in changed]
        missing = changed - {member.id for member in members}
        if missing:
            urls = ", ".join(member.url for member in self._members if member.identity is None)
            raise Unreachable(
                f"no broker answers at {urls}, and a batch of the query already contains its messages: this one batch needs it,"
                " also with failOnBrokerLoss=false; start the query again when it is back"
            )
        self._settle([member for member in self._present() if member.id not in changed], until)
        planned = {member: _plan(member, before, until) for member in members}
        parts = [_patiently(member, answer, before, until) for member, answer in planned.items()]
        # Spark starts tasks in this order: each broker's disk and network should have work from the beginning.
        return [part for round_ in zip_longest(*parts) for part in round_ if part is not None]

    def settle(self, end: Mapping[str, Any]) -> None:
        finished = self._enter(end)  # which may make members present
        self._settle(self._present(), finished)

    def counts(self) -> dict[str, Any]:
        total: dict[str, Any] = {}
        away = []
        for member in self._members:
            for queue, counts in member.counts().items():
                if isinstance(counts, str):
                    away.append(f"{member.url}: {counts}")
                elif counts:
                    total[queue] = added_counts(total.get(queue, {}), counts)
        return {**total, "away": "; ".join(away)} if away else total

    def close(self) -> None:
        for member in self._members:
            member.close()

    # --- A trigger -----------------------------------------------------------------------------------------------------

    def _unfinished(self, known: BrokersOffset) -> Taken:
        taken: Taken = {}
        for members in self._ordered(known):
            taken |= self._advance(known, members, no_credit)
        return taken

    def _arrived(self, known: BrokersOffset, credit: Credit, is_new: bool) -> Taken:
        free = self._free(known)
        taken = self._polled(known)
        if taken and not is_new:
            taken |= self._advance(known, free, no_credit)
        return taken

    def _acquire(self, known: BrokersOffset, credit: Credit, wait_ms: int) -> Taken:
        taken: Taken = {}
        for member in self._present():
            if member.poll is not None and member.away_since is None:
                credit.reserve(member.poll.credit)
        if not credit.limited:
            taken = self._advance(known, self._free(known), lambda: Credit(None, None))
        elif not credit.spent:
            credit.shared = True
            for member in self._free(known):
                taken |= self._advance(known, [member], lambda: credit)
        return taken or self._wait(known, credit, wait_ms)

    def _free(self, known: BrokersOffset) -> list[Member]:
        return rotated([member for member in self._present() if member.may_be_asked], known.rotation)

    def _ordered(self, known: BrokersOffset) -> list[list[Member]]:
        """Return groups to ask one after another: a broker that may refuse the lease comes first."""
        free = self._free(known)
        if known.parts or not self._has_lease_option or len(free) < 2:
            return [free]
        states = self._ask(free, lambda _, consumer: consumer.lease_state())
        first = min(states, key=lambda member: states[member], default=None)
        return [[member for member in states if member is first], [member for member in states if member is not first]]

    def _advance(self, known: BrokersOffset, members: Iterable[Member], credit: Callable[[], Credit]) -> Taken:
        return self._taken(known, self._answers({member: self._poll(member, known, 0, credit()) for member in members}))

    def _poll(self, member: Member, known: BrokersOffset, wait_ms: int, credit: Credit) -> Future[dict[str, Any]]:
        start, once = known.of(member.id), self._once
        answer = member.ask(lambda consumer: consumer.advance(start, wait_ms=wait_ms, credit=credit, once=once))
        member.poll = Poll(start, answer, credit)
        return answer

    def _taken(self, known: BrokersOffset, answers: Mapping[Member, dict[str, Any]]) -> Taken:
        """Note that these members have settled up to `known`; return those with a batch."""
        for member in answers:
            member.settled = known.of(member.id)
        return {member: part for member, part in answers.items() if part != known.of(member.id)}

    def _polled(self, known: BrokersOffset) -> Taken:
        """Return answers to requests of earlier triggers."""
        polls = {member: member.poll for member in self._present() if member.poll is not None}
        outdated = {member: poll.answer for member, poll in polls.items() if poll.start != known.of(member.id)}
        self._gather(outdated)  # a batch was begun again since: theirs are unfinished, and found later
        ready = {member: poll.answer for member, poll in polls.items() if member not in outdated and poll.answer.done()}
        return self._taken(known, self._gather(ready))

    def _wait(self, known: BrokersOffset, credit: Credit, wait_ms: int) -> Taken:
        if not wait_ms:
            return {}
        members = self._present()
        asked = [member for member in members if member.may_be_asked and member.away_since is None]
        for member, share in zip(asked, credit.divided(len(asked)), strict=True):
            if not share.spent:
                self._poll(member, known, wait_ms, share)
        give_up = time.monotonic() + wait_ms / 1000 + POLL_GRACE_S
        while polls := {member: member.poll.answer for member in members if member.poll is not None}:
            wait(polls.values(), max(0.0, give_up - time.monotonic()), FIRST_COMPLETED)
            ready = {member: answer for member, answer in polls.items() if answer.done()}
            taken = self._taken(known, self._gather(ready))
            if taken or not ready:
                return taken
        return {}

    def _settle(self, members: Iterable[Member], known: BrokersOffset) -> None:
        unsettled = [member for member in members if member.id in known.parts and member.settled != known.of(member.id)]
        asked = [member for member in unsettled if member.may_be_asked]
        for member in self._ask(asked, lambda member, consumer: consumer.settle(known.of(member.id))):
            member.settled = known.of(member.id)

    # --- Asking --------------------------------------------------------------------------------------------------------

    def _ask(self, members: Iterable[Member], call: Callable[[Member, BrokerConsumer], _Result]) -> dict[Member, _Result]:
        return self._answers({member: member.ask(partial(call, member)) for member in members})

    def _answers(self, answers: Mapping[Member, Future[_Result]]) -> dict[Member, _Result]:
        """Return the answers that come in time, as `_gather`."""
        if answers:
            wait(answers.values(), None if self._fail_on_broker_loss else HOLD_UP_S)
        ends = self._ends or self._once
        while ends and (busy := [answer for member, answer in answers.items() if not answer.done() and member.is_busy]):
            wait(busy, HOLD_UP_S)
        ready = {member: answer for member, answer in answers.items() if answer.done()}
        for member in answers:
            if member not in ready:
                self._lost(member, None)
        return self._gather(ready)

    def _gather(self, answers: Mapping[Member, Future[_Result]]) -> dict[Member, _Result]:
        """Wait for these answers; leave out brokers that are away. Raises the first other error."""
        results, failure = {}, None
        for member, answer in answers.items():
            try:
                results[member] = answer.result()
                if (away := member.returned()) is not None:
                    log.info("the broker at %s answers again after %.1f s, and the query reads from it again", member.url, away)
            except PenstockError as error:
                if self._fail_on_broker_loss or not is_loss(error):
                    failure = failure or error
                else:
                    self._lost(member, error)
            if member.poll is not None and member.poll.answer is answer:
                member.poll = None
        if failure is not None:
            raise failure
        return results

    def _lost(self, member: Member, error: PenstockError | None) -> None:
        if member.lost():
            why = f"nothing for {HOLD_UP_S:g} s" if error is None else str(error)
            log.warning("the query continues without the broker at %s until it answers again: %s", member.url, why)

    # --- Identities ----------------------------------------------------------------------------------------------------

    def _present(self) -> list[Member]:
        return [member for member in self._members if member.identity is not None]

    def _identify(self) -> None:
        unknown = [member for member in self._members if member.identity is None and member.may_be_asked]
        for member, identity in self._ask(unknown, lambda _, consumer: consumer.identity()).items():
            member.identity = identity
        if self._checked != len(self._present()):
            self._checked = len(self._present())
            check_identities({member.url: member.identity for member in self._present() if member.identity is not None})

    def _enter(self, data: Mapping[str, Any]) -> BrokersOffset:
        """Raises WrongOffset if the option lacks a broker that the offset needs."""
        known = parse_brokers(data)
        self._identify()
        remaining = self._remaining(known)
        if removed := [broker for broker in known.parts if broker not in remaining]:
            check_removed(known, removed)
        return known

    def _remaining(self, known: BrokersOffset) -> set[str]:
        """Return the brokers that stay in the offset: a member without an identity may be any of the others."""
        present = {member.id for member in self._present()}
        return present if len(present) == len(self._members) else {*known.parts, *present}


def _plan(member: Member, before: BrokersOffset, until: BrokersOffset) -> Future[Sequence[InputPartition]]:
    start, end = before.of(member.id), until.of(member.id)
    return member.ask(lambda consumer: consumer.plan(start, end))


def _patiently(
    member: Member, answer: Future[Sequence[InputPartition]], before: BrokersOffset, until: BrokersOffset
) -> Sequence[InputPartition]:
    """Ask again while the broker is away: a batch that has begun needs it."""
    patience = Patience(RECONNECT_S)
    while True:
        try:
            return answer.result()
        except PenstockError as error:
            if not is_loss(error):
                raise
            patience.wait(error)
        answer = _plan(member, before, until)


def check_removed(known: BrokersOffset, removed: list[str]) -> None:
    """A removed broker must not hold a batch, and not be the query's last one."""
    held = next((broker for broker in removed if broker in known.held), None)
    if held is not None:
        raise WrongOffset(
            f"broker {held} holds a batch of this query, and the option url, or spool, does not name it any longer: put it back."
            " Take it out after a batch without messages of that broker"
        )
    if len(removed) == len(known.parts):
        raise WrongOffset(
            f"the option url names none of the brokers that the checkpoint belongs to ({', '.join(removed)}): point it at them,"
            " or start with a new checkpoint"
        )
