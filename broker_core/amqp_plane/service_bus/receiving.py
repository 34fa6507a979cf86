"""Links on which a client receives: lock tokens as tags, the vendor's annotations and outcomes.

A lock token has 16 octets: the sequence number (8), the link's holder (5) and the number of its acquisition (3), which begins
at random. So each delivery of a message has its own token, and a token names its link. Locks end with their link.

| the vendor's outcome | on the wire | becomes |
|---|---|---|
| complete | accepted | accepted |
| abandon | modified, with or without delivery-failed | a failed attempt |
| dead-letter | rejected, with reason and description | rejected, with both as its error |
| any of these with changed properties | annotations, or info of the error | annotations: see `annotations` |
| release (prefetched messages at the end) | released | released, which does not count as an attempt |
| defer | modified, undeliverable-here | deferred, which counts as an attempt |

An outcome that cannot be carried out, such as changed properties above a limit, is answered with *rejected* and an error. The
message stays locked, and a request can name its lock token.

SDKs wait for the answer to an outcome in a transaction before they commit. So the answer is sent immediately, unsettled. The
commit settles it. After a rollback, the lock holds.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable
from dataclasses import replace
from functools import partial
from typing import Any, Protocol

from ... import errors
from ...amqp import Modified, Rejected, Sender, TransactionalState
from ...amqp.deliveries import Delivery
from ...amqp.encoder import encode
from ...amqp.performatives import TERMINAL, DeliveryState, Error
from ...engine import commands as c
from ...engine.columns.rowset import RowSet
from ...engine.columns.states import Cause, Outcome
from ...engine.model.batch_outcomes import shortened
from ...engine.model.dispositions import DeliveryEnd
from ...service.turn import Turn
from .. import queue_reads
from ..conditions import as_error
from ..connections.peer import Peer
from ..links.consumer import ConsumerLink
from ..links.dispositions import NUMBER, rows_of_numbers, rows_of_tags
from ..links.termini import SourceTerminus
from ..loop.requests import Retirement
from ..transactions.registry import ConnectionTransactions
from . import vendor
from .annotations import changes, dressed, error_text
from .requests import GONE, RequestFailed

NO_END = 4_102_444_800_000  # milliseconds since 1970, the year 2100: of locks in a queue without lockTimeout; Java counts to 2262
MAX_REFUSED = 1000  # lock tokens of one link, after refused outcomes
LOST = Error(condition=vendor.MESSAGE_LOCK_LOST, description="the lock of the message has expired, or was released")


class LockHolder(Protocol):
    """Holder of locked messages that requests name by lock token."""

    peer: Peer
    queue: str

    @property
    def session_id(self) -> str | None:
        """The session whose lock the messages have; None: they have their own."""

    def locked(self, tag: bytes) -> object:
        """Raises RequestFailed if the lock has ended."""

    def renew(self, turn: Turn, tags: list[bytes]) -> int:
        """Renew locks; return their end. Raises RequestFailed."""

    def settle_by_token(self, turn: Turn, tag: bytes, state: DeliveryState) -> None:
        """Carry out an outcome. Raises RequestFailed."""


Receivers = dict[int, LockHolder]  # by holder: all of the plane


class EntityReceiver(ConsumerLink):
    """Link from a queue. `receivers` contains it while it is open."""

    _lost_state = Rejected(error=LOST)
    keeps = False

    def __init__(
        self,
        peer: Peer,
        transactions: ConnectionTransactions,
        link: Sender,
        terminus: SourceTerminus,
        receivers: Receivers,
        *,
        presettled: bool,
    ) -> None:
        super().__init__(peer, transactions, link, terminus, None, presettled=presettled)
        self.receivers = receivers
        self._until: dict[int, int] = {}  # by acquisition: the end of its locks, milliseconds since 1970
        self._next_until = NO_END
        self._refused: dict[int, bytes] = {}  # by sequence number: tokens of messages that stay locked after a refused outcome
        self._salt = secrets.randbits(24)  # holders begin again with the broker: a token of its last run is not one of this run

    def begin(self, turn: Turn) -> None:
        super().begin(turn)
        self.receivers[self.holder] = self

    def end(self, turn: Turn) -> None:
        super().end(turn)
        self.receivers.pop(self.holder, None)

    @property
    def session_id(self) -> str | None:
        return None

    # --- acquiring

    def take(self, turn: Turn, messages: int, max_bytes: int, behind: tuple[int, ...] = ()) -> tuple[RowSet, int]:
        self._next_until = self.locked_until(turn)
        return super().take(turn, messages, max_bytes, behind)

    def locked_until(self, turn: Turn) -> int:
        return lock_end(self.peer, turn, self.queue)

    def taken(self, rows: RowSet) -> int:
        number = super().taken(rows)
        self._until[number] = self._next_until
        if self._refused:  # their former locks have ended
            for sequence in rows.sequences().tolist():
                self._refused.pop(sequence, None)
        return number

    def _dressed(self, acquisition: int, time: int, tags: list[bytes], messages: list[bytes]) -> Iterable[tuple[bytes, bytes]]:
        until = None if self._presettled else self._until[acquisition]
        suffix = lock_suffix(self.holder, acquisition + self._salt)
        for tag, message in zip(tags, messages, strict=True):
            yield tag + suffix, dressed(message, int.from_bytes(tag, "big"), time // 1000, until)

    def deliver(self, acquisition: int, slices: Any) -> None:
        super().deliver(acquisition, slices)
        self._until.pop(acquisition, None)

    # --- outcomes

    def _end_of(self, state: DeliveryState | None, settled: bool) -> DeliveryEnd | None:
        return as_vendor(super()._end_of(as_changes(state), settled), state)

    def settle(self, turn: Turn, disposition: DeliveryEnd | Retirement, deliveries: list[Delivery]) -> None:
        if isinstance(disposition, DeliveryEnd) and disposition.annotations:  # which may exceed a limit of one message
            for delivery in deliveries:
                super().settle(turn, disposition, [delivery])
        else:
            super().settle(turn, disposition, deliveries)

    def refuse_outcomes(self, deliveries: list[Delivery], error: errors.PenstockError, *, in_transaction: bool = False) -> None:
        """Report an outcome that cannot be carried out. After a rollback, the receiver may set another one."""
        self.peer.log(f"{self}: an outcome is refused: {error}")
        if in_transaction:
            self._refuse_unsettled(deliveries, error)
            return
        for delivery in deliveries:
            delivery.state = Rejected(error=as_error(error))
            self._refused[int.from_bytes(delivery.tag[:NUMBER], "big")] = delivery.tag
        while len(self._refused) > MAX_REFUSED:
            del self._refused[next(iter(self._refused))]
        self.settled(deliveries)

    def begun(self) -> RowSet:
        return super().begun().plus(rows_of_numbers(list(self._refused)))

    def _answer_to(self, state: DeliveryState | None) -> Any:
        return Rejected() if isinstance(state, Rejected) else super()._answer_to(state)

    def answer_in(self, state: TransactionalState) -> Any:
        return TransactionalState(txn_id=state.txn_id, outcome=self._answer_to(state.outcome))

    def retired(self, turn: Turn, deliveries: list[Delivery], error: errors.PenstockError | None) -> None:
        held, lost = (deliveries, list[Delivery]()) if error is None else self._divided(turn, deliveries)
        self._end_lost(lost)
        if error is not None:
            self.loop.when_durable(0, partial(self._refuse_unsettled, held, error))
            return
        for delivery in held:
            if isinstance(state := delivery.state, TransactionalState):
                self.loop.when_durable(0, partial(self._answer_unsettled, [delivery], self.answer_in(state)))

    def _refuse_unsettled(self, deliveries: list[Delivery], error: errors.PenstockError) -> None:
        self._answer_unsettled(deliveries, Rejected(error=as_error(error)))
        for delivery in deliveries:
            delivery.state = None

    def _answer_unsettled(self, deliveries: list[Delivery], state: DeliveryState) -> None:
        waiting = [d for d in deliveries if not d.settled and not d.remote_settled]
        if waiting and self.may_tell:
            self.session.dispose(waiting, state, settled=False)
            self.peer.send_soon()

    # --- requests that name a lock token

    def locked(self, tag: bytes) -> None:
        if not self._is_refused(tag):
            self._locked_delivery(tag)

    def _is_refused(self, tag: bytes) -> bool:
        return self._refused.get(int.from_bytes(tag[:NUMBER], "big")) == tag

    def _locked_delivery(self, tag: bytes) -> Delivery:
        delivery = self.link.unsettled.get(tag)
        if delivery is None or isinstance(delivery.state, TERMINAL):
            raise lock_lost()
        return delivery

    def renew(self, turn: Turn, tags: list[bytes]) -> int:
        return renewed(self.peer, turn, self.queue, self.holder, tags)

    def settle_by_token(self, turn: Turn, tag: bytes, state: DeliveryState) -> None:
        is_refused = self._is_refused(tag)
        deliveries = [] if is_refused else [self._locked_delivery(tag)]
        end = self._end_of(state, settled=True)
        assert end is not None
        _, error, durable = turn.carry_out(c.command_of(end, self.queue, self.holder, rows_of_tags([tag])))
        if isinstance(error, errors.ResourceLimit):
            raise error
        if is_refused:
            del self._refused[int.from_bytes(tag[:NUMBER], "big")]
        if error is not None:
            self._end_lost(deliveries)
            raise lock_lost()
        for delivery in deliveries:
            delivery.state = self._answer_to(state)
        self.loop.when_durable(durable, partial(self.settled, deliveries))


def as_changes(state: DeliveryState | None) -> DeliveryState | None:
    """Return an outcome with its changed properties as annotations. Raises InvalidRequest."""
    if not isinstance(state, Modified) or not state.message_annotations:
        return state
    return replace(state, message_annotations=changes(state.message_annotations))


def _changes_of(state: Rejected) -> bytes | None:
    """Raises InvalidRequest."""
    info = {} if state.error is None else state.error.info or {}
    changed = {name: value for name, value in info.items() if name not in (vendor.REASON, vendor.DESCRIPTION)}
    return encode(changes(changed)) if changed else None


def lock_end(peer: Peer, turn: Turn, queue: str) -> int:
    """Return the end of a lock that begins now."""
    timeout = queue_reads.lock_timeout(turn, queue)
    return peer.context.wall_ms() + timeout if timeout else NO_END


def renewed(peer: Peer, turn: Turn, queue: str, holder: int, tags: list[bytes]) -> int:
    """Renew locks; return their end. Raises RequestFailed."""
    try:
        turn.execute(c.RenewLock(queue, holder, rows_of_tags(tags)))
    except errors.IllegalTransition:
        raise lock_lost() from None
    return lock_end(peer, turn, queue)


def as_vendor(end: DeliveryEnd | None, state: DeliveryState | None) -> DeliveryEnd | None:
    """Return the end of a delivery as the vendor reads the outcome. `end`: the plain one."""
    if isinstance(state, Rejected):
        return DeliveryEnd(outcome=Outcome.REJECTED, error=shortened(_reason(state.error)), annotations=_changes_of(state))
    if end is not None and isinstance(state, Modified) and state.undeliverable_here:
        return end._replace(cause=Cause.DEFERRED, exclude=False, retry=None)
    if end is not None and isinstance(state, Modified):  # Java and JavaScript abandon with an outcome that has no fields
        return end._replace(cause=Cause.MODIFIED)
    return end


def _reason(error: Error | None) -> str:
    info = {} if error is None else {str(name): value for name, value in (error.info or {}).items()}
    reason, description = info.get(vendor.REASON), info.get(vendor.DESCRIPTION)
    if error is not None and description is None:
        description = error.description
    return error_text(str(reason or ""), str(description or ""))


def lock_lost() -> RequestFailed:
    return RequestFailed(GONE, vendor.MESSAGE_LOCK_LOST, str(LOST.description))


def lock_suffix(holder: int, acquisition: int) -> bytes:
    return (holder % (1 << 40)).to_bytes(5, "big") + (acquisition % (1 << 24)).to_bytes(3, "big")


def holder_of(tag: bytes) -> int:
    return int.from_bytes(tag[8:13], "big")
