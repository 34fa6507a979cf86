"""A link on which a client sends. Each message is confirmed when it is durable.

Credit is a window of unconfirmed messages, so that they are bounded even if the disk is slow.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from operator import attrgetter

from ...amqp import Accepted, Condition, Declared, DecodeError, Link, Receiver, Rejected, Released, TransactionalState
from ...amqp.deliveries import Delivery
from ...amqp.performatives import RCV_SECOND, TERMINAL, Attach, DeliveryState, Error, Source
from ...amqp.types import Symbol
from ...errors import QueueFull, TransactionRolledBack
from ...messages.encoding.fields import address_of, user_id_of
from ...service.turn import Turn
from ..conditions import Refusal, as_error
from ..connections.peer import Peer
from ..loop.confirmations import NoRoute, also_staged
from ..loop.requests import ExchangeRoute, Immediate, Posting
from ..transactions.registry import ConnectionTransactions, OpenTransaction
from .endpoint import Resumable, Unsettled
from .termini import TargetTerminus
from .waiting_list import WaitingList

RENEW_PART = 10  # credit is renewed when a tenth of the window has been confirmed
_RESUMED = attrgetter("resumed")


class IncomingLink(Resumable):
    """Link on which a client sends."""

    link: Receiver
    terminus: TargetTerminus
    successor: IncomingLink | None
    names_each = False  # each message has its own rejection, which contains its delivery tag

    def __init__(self, peer: Peer, transactions: ConnectionTransactions, link: Receiver, terminus: TargetTerminus) -> None:
        super().__init__(peer, link, terminus)
        self.transactions = transactions
        self.usual_bytes = 0  # of the last message of this sender
        self._unconfirmed = 0
        self._before: Link | None = None  # the link that it resumes, until the attach is answered
        self._unnamed: dict[bytes, DeliveryState | None] = {}  # outcomes that our unsettled map had no room for
        self._unfinished: set[Delivery] = set()  # the sender has to settle them (receiver-settles-second)

    def __repr__(self) -> str:
        return f"link {self.link.name!r} to {self.terminus.named!r} of {self.peer}"

    @property
    def window(self) -> int:
        return self.context.settings.amqp_credit

    @property
    def max_message_size(self) -> int:
        """The limit of our attach, in octets."""
        return self.context.settings.max_message_bytes

    def delivered(self, deliveries: list[Delivery]) -> None:
        self._unconfirmed += len(deliveries)
        if any(map(_RESUMED, deliveries)):
            deliveries = self._resumed(deliveries)
            if not deliveries:
                return
        self.usual_bytes = len(deliveries[-1].payload)
        formats = [d for d in deliveries if d.format]
        if formats:
            refusal = Refusal(Condition.NOT_IMPLEMENTED, f"message-format {formats[0].format} is not known here")
            self._refuse(formats, refusal)
            deliveries = [d for d in deliveries if not d.format]
        if self.context.settings.amqp_check_user_id and self.context.access.enforced:
            deliveries = self._without_others(deliveries)
        if not deliveries:
            return
        transaction: OpenTransaction | None = None
        state = deliveries[0].remote_state  # all of them have the same one: see `TransferRun`
        if isinstance(state, TransactionalState):
            try:
                transaction = self.transactions.find(state.txn_id)
            except Refusal as error:  # answered as for outcomes, which have no other answer (4.5.8)
                self._unconfirmed -= len(deliveries)
                self._give_up(deliveries[0], as_error(error))
                return
        self._route(deliveries, transaction)

    def _without_others(self, deliveries: list[Delivery]) -> list[Delivery]:
        user = self.peer.user.encode()
        others = {d: named for d in deliveries if (named := user_id_of(d.payload)) is not None and named != user}
        for delivery, named in others.items():
            text = f"its user-id {named!r:.80} is not the user who sends it: leave it out, or see amqp_check_user_id"
            self._refuse([delivery], Refusal(Condition.UNAUTHORIZED_ACCESS, text))
        return [d for d in deliveries if d not in others] if others else deliveries

    def _refuse(self, deliveries: list[Delivery], refusal: Refusal) -> None:
        self.loop.count_refused(self.terminus.named or "", refusal, len(deliveries))
        self.refused(deliveries, refusal)

    def _resumed(self, deliveries: list[Delivery]) -> list[Delivery]:
        """Repeat the outcomes of resumed deliveries. Returns the new deliveries."""
        for delivery in [d for d in deliveries if d.resumed]:
            self._unconfirmed -= 1
            delivery.payload = b""
            self._dispose([delivery], delivery.state)  # type: ignore[arg-type]
        self._renew_batch()
        return [delivery for delivery in deliveries if not delivery.resumed]

    def _route(self, deliveries: list[Delivery], transaction: OpenTransaction | None) -> None:
        self._send(self.terminus.route(), deliveries, transaction)

    def _send(
        self, route: str | Immediate | ExchangeRoute, deliveries: list[Delivery], transaction: OpenTransaction | None
    ) -> None:
        if transaction is None:
            self.loop.enqueue(route, self, deliveries)
        else:  # no consumer can have an *immediate* message before the commit
            self.loop.enqueue(Posting(route.queue if isinstance(route, Immediate) else route, transaction), self, deliveries)

    # --- effects

    def confirmed(self, deliveries: list[Delivery]) -> None:
        if self.successor is not None:
            self.successor.confirmed(deliveries)
            return
        self._unconfirmed -= len(deliveries)
        self._dispose(deliveries, Accepted())
        self._renew_batch()

    def refused(self, deliveries: list[Delivery], error: Exception) -> None:
        """Reject deliveries. If the sender has settled them, its link ends instead."""
        if self.successor is not None:
            self.successor.refused(deliveries, error)
            return
        self._unconfirmed -= len(deliveries)
        transaction = self._fail(deliveries[0], error)
        if isinstance(error, NoRoute):
            self._dispose(deliveries, Released())
            self._renew_batch()
            return
        rejection = as_error(error)
        if self.names_each:
            for delivery in deliveries:
                self._dispose([delivery], Rejected(error=_naming(rejection, delivery)))
        else:
            self._dispose(deliveries, Rejected(error=rejection))
        self._renew_batch()
        if transaction is not None:
            return
        settled = next((delivery for delivery in deliveries if delivery.remote_settled), None)
        if settled is not None:
            self._give_up(settled, rejection)

    def _fail(self, delivery: Delivery, error: Exception) -> OpenTransaction | None:
        transaction = self.transactions.get(delivery.remote_state)
        if transaction is not None:
            transaction.fail(error)
        return transaction

    def _give_up(self, delivery: Delivery, error: Error) -> None:
        """Detach, after all earlier answers, because of a delivery that no outcome can answer."""
        self.loop.after_all(partial(self.peer.detach, self, _naming(error, delivery)))

    def _dispose(self, deliveries: list[Delivery], outcome: Accepted | Rejected | Released | Declared) -> None:
        session = self.session
        open_ones = [d for d in deliveries if not d.remote_settled and not d.settled]
        if not open_ones or not self.may_tell:
            for delivery in open_ones:  # for a sender that comes back
                delivery.state, delivery.payload = outcome, b""
            return
        transaction = self.transactions.get(open_ones[0].remote_state)
        state: DeliveryState = outcome
        if transaction is not None:  # the outcome is provisional
            state = TransactionalState(txn_id=transaction.id, outcome=outcome)
        # Receiver-settles-second: the sender receives the outcome, and settles first (2.6.12).
        second = [d for d in open_ones if d.rcv_settle_mode == RCV_SECOND]
        if second:
            session.dispose(second, state, settled=False)
            self._unfinished.update(second)
            for delivery in second:
                delivery.payload = b""
            open_ones = [d for d in open_ones if d.rcv_settle_mode != RCV_SECOND]
        if open_ones:
            session.dispose(open_ones, state)
        self.peer.send_soon()
        if self.detached:
            self.peer.registry.look(self)

    def _renew_batch(self) -> None:
        self.renew(self.window // RENEW_PART)

    def renew(self, batch: int = 1) -> None:
        """Grant credit if it is at least `batch` more than the sender has, or all that its queue has capacity for."""
        if not self._alive:
            return
        held = self._unconfirmed + len(self._unfinished)
        window = wanted = self.window - held
        second = self.link.rcv_settle_mode == RCV_SECOND
        if second:  # otherwise our outcome settles, and the sender keeps nothing unsettled
            most = self.context.settings.amqp_max_unsettled_per_connection
            wanted = min(wanted, self.context.sender_credit.room(self, self.peer.connection, held, most))
        credit = self.context.sender_credit.allowed(self, wanted, self._unconfirmed, self.link.link_credit)
        more = credit - self.link.link_credit
        if credit > 0 and more >= (batch if credit == window else 1):
            self.link.grant(credit)
            self.peer.send_soon()
        if second:
            self.context.sender_credit.claim(self, self.peer.connection, held + self.link.link_credit)

    # --- frames of the sender

    def disposed(self, deliveries: list[Delivery], state: object, settled: bool) -> None:
        """Forget deliveries that the sender settles after our outcome."""
        if settled:
            self._unfinished.difference_update(deliveries)
            self._renew_batch()
            if self.detached:
                self.peer.registry.look(self)

    # --- without a link

    @property
    def unsettled(self) -> int:
        return len(self.link.unsettled) + len(self.link.resumable) + len(self._unnamed)

    def suspend(self, turn: Turn) -> None:
        self.context.sender_credit.leave(self, self.peer.connection)

    def go_on(self, turn: Turn, former: IncomingLink) -> None:
        self.usual_bytes, self._unconfirmed, self._unfinished = former.usual_bytes, former._unconfirmed, former._unfinished
        self._unnamed = former._unnamed

    def resume(self, turn: Turn, former: IncomingLink, theirs: Attach) -> None:
        """Resume deliveries. Our unsettled map is made when all of them have their outcomes.

        The map cannot contain the end of a transaction, and messages that are sent again would exist twice. So their transactions
        are rolled back.
        """
        self._before, self._unnamed = former.link, former._unnamed
        for delivery in former.link.unsettled.values():
            transaction = former.transactions.get(delivery.state)
            if transaction is not None:
                transaction.fail(TransactionRolledBack("a sender came back on another link before the end of its transaction"))

    def known_unsettled(self, theirs: Attach) -> dict[bytes, DeliveryState | None]:
        """Return the outcomes of the former link's deliveries, except for those the sender has settled."""
        if self._before is None:
            return {}
        ended = {tag: d.state for tag, d in self._before.unsettled.items() if isinstance(d.state, TERMINAL)}
        known = {**self._unnamed, **self._before.resumable, **ended}
        self._before, self._unnamed = None, {}
        self.incomplete = theirs.incomplete_unsettled
        if self.incomplete:
            return known
        return {tag: state for tag, state in known.items() if tag in (theirs.unsettled or {})}

    def name_only(self, named: Unsettled, known: Unsettled) -> None:
        """Keep the other deliveries: the next attach contains their outcomes."""
        self._unnamed = {tag: state for tag, state in known.items() if tag not in named}

    def end(self, turn: Turn) -> None:
        self.ended = True
        self.context.sender_credit.leave(self, self.peer.connection)


def _naming(error: Error, delivery: Delivery) -> Error:
    return Error(condition=error.condition, description=error.description, info={Symbol("delivery-tag"): delivery.tag})


def can_reject(source: Source) -> bool:
    return not source.outcomes or "amqp:rejected:list" in source.outcomes


class AnonymousTerminus(IncomingLink):
    """Each message names its target in its property `to` (OASIS anonymous terminus 1.0)."""

    names_each = True

    def __init__(
        self,
        peer: Peer,
        transactions: ConnectionTransactions,
        link: Receiver,
        terminus: TargetTerminus,
        find: Callable[[str | None], str | ExchangeRoute],
        source: Source,
    ) -> None:
        super().__init__(peer, transactions, link, terminus)
        self._find = find
        self._can_reject = can_reject(source)
        self._waiting_lists: dict[str, WaitingList] = {}  # by queue

    def _route(self, deliveries: list[Delivery], transaction: OpenTransaction | None) -> None:
        routed: dict[str | Immediate | ExchangeRoute, list[Delivery]] = {}
        for delivery in deliveries:
            try:
                route: str | Immediate | ExchangeRoute = self._find(address_of(delivery.payload))
                immediate = self.terminus.immediate
                if isinstance(route, str) and (immediate or transaction is not None):  # the message cannot wait
                    if self.context.sender_credit.is_full(route):
                        staged = also_staged(self.context.nodes, route)
                        error = QueueFull(f"the queue {route!r} is full{staged}: send by a link to it, which waits for room")
                        self.loop.count_refused(route, error)
                        raise error
                    route = Immediate(route) if immediate else route
                routed.setdefault(route, []).append(delivery)
            except (Refusal, DecodeError, QueueFull) as refusal:
                self.keep_out(delivery, refusal)
        for route, several in routed.items():
            line = self._waiting_list(route) if isinstance(route, str) and transaction is None else None
            if line is None:
                self._send(route, several, transaction)
            else:
                line.add(several)

    def _waiting_list(self, queue: str) -> WaitingList | None:
        """Return the waiting list of a queue that blocks. All messages pass through it, in order."""
        line = self._waiting_lists.get(queue)
        if line is None and self.context.sender_credit.blocks(queue):
            line = self._waiting_lists[queue] = WaitingList(self, queue)
            self.context.sender_credit.waiting_lists[line] = None
        return line

    def leave(self, line: WaitingList) -> None:
        self._waiting_lists.pop(line.queue, None)
        self.context.sender_credit.waiting_lists.pop(line, None)

    def end(self, turn: Turn) -> None:
        super().end(turn)
        for line in list(self._waiting_lists.values()):
            line.end()
            self.leave(line)

    def session_ended(self) -> None:
        """Drop the waiting lists' messages: the sender keeps them."""
        for line in list(self._waiting_lists.values()):
            for delivery in line.end():
                self.link.unsettled.pop(delivery.tag, None)
            self.leave(line)

    def go_on(self, turn: Turn, former: IncomingLink) -> None:
        super().go_on(turn, former)
        assert isinstance(former, AnonymousTerminus)
        self._waiting_lists, former._waiting_lists = former._waiting_lists, {}
        for line in self._waiting_lists.values():
            line.link = self

    def keep_out(self, delivery: Delivery, error: Exception) -> None:
        """Reject a delivery, or detach if the sender's source excludes *rejected*."""
        if self._can_reject:
            self.refused([delivery], error)
        else:
            self._unconfirmed -= 1
            self._fail(delivery, error)
            self._give_up(delivery, as_error(error))
