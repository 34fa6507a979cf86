"""The action that explains why consumers do not receive the next message, with texts for people."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from typing import Any, NamedTuple

from ..engine import commands as c
from ..engine.columns.limits import ALIVE, EXPLAINED_CONSUMERS, SECOND
from ..engine.columns.obstacles import Obstacle
from ..engine.decide.explanations import ranked
from ..errors import NotFound
from ..logs import counted
from ..selectors import parse
from ..service.broker import BrokerService
from .declaration import ActionCall, Reply, action
from .permissions import admin
from .requests import OfQueue
from .schemas import BOOL, COUNT, MILLIS, SECONDS, TEXT, list_of, nullable, object_of, one_of, properties

_REASON = object_of(
    ("messages", "until", "by"),
    reason=one_of(*(obstacle.value for obstacle in Obstacle)),
    text=TEXT,
    messages=COUNT,
    until=MILLIS,
    by=TEXT,
)
_CONSUMER = object_of(
    kind=one_of("link", "lease"),
    name=TEXT,
    **properties(nullable(TEXT), "connection", "user", "peer", "container", "selector"),
    priority=nullable({"type": "integer"}),
    **properties(nullable(COUNT), "credit", "unsettled"),
    held=COUNT,
    heldSeconds=nullable(SECONDS),
    receives=BOOL,
    next=nullable(COUNT),
    lookedAt=COUNT,
    reasons=list_of(_REASON),
)


@action(
    "queue.explain",
    admin("see the consumers of"),
    object_of(
        queue=TEXT,
        paused=BOOL,
        **properties(COUNT, "available", "acquired", "delayed", "deferred"),
        nextDue=nullable(MILLIS),
        consumerCount=COUNT,
        consumers=list_of(_CONSUMER),
    ),
    reads=True,
)
def _explain(call: ActionCall, request: OfQueue) -> Reply:
    """Explains for each consumer of a queue why it does not receive the next message."""
    queue = call.service.submit(c.DescribeConsumers(request.queue, EXPLAINED_CONSUMERS))
    consumers = _explained(call.service, request.queue, queue)
    by_holder = {consumer.state.holder: consumer for consumer in consumers if consumer.state.holder}
    texts = _Texts(call.service, request.queue, queue, by_holder)
    return {
        "queue": request.queue,
        "paused": queue.paused,
        "available": queue.available,
        "acquired": queue.acquired,
        "delayed": queue.delayed,
        "deferred": queue.deferred,
        "nextDue": queue.due,
        "consumerCount": queue.total,
        "consumers": [_described(consumer, texts) for consumer in consumers],
    }


class _Consumer(NamedTuple):
    """A consumer, the engine's answer, and facts of a link with a client."""

    state: c.ConsumerState
    explained: c.Explained
    link: Mapping[str, Any]

    @property
    def label(self) -> str:
        if self.state.lease is not None:
            return f"lease {self.state.lease!r}"
        return f"{self.link['peer']} ({self.link['user']})" if self.link else self.state.taker or "a detached link"


def _explained(service: BrokerService, name: str, queue: c.QueueState) -> list[_Consumer]:
    holders = [consumer.holder for consumer in queue.consumers if consumer.lease is None]
    links = {link["holder"]: link for link in service.connections.consumers(name, holders)}
    explained: list[tuple[c.ConsumerState, c.Explained]] = []
    end = 0
    for consumer in queue.consumers:
        link = links.get(consumer.holder)
        absent = Obstacle.DETACHED if consumer.lease is None else None
        obstacle = absent if link is None else link["obstacle"]
        with service.turn(hurry=False) as turn:  # one for each consumer, so that deliveries wait for 1 ms at most
            try:
                matching = None if consumer.selector is None else service.matching.view(name, consumer.selector)
                behind = () if link is None else link["behind"]
                command = c.Explain(name, consumer.holder, consumer.lease, obstacle, matching, behind)
                answer, end = turn.execute(command)
            except NotFound:
                continue  # it has ended
        explained.append((consumer, answer))
    service.journal.wait(end)
    answers = zip(explained, ranked(explained), strict=True)
    return [_Consumer(consumer, answer, links.get(consumer.holder, {})) for (consumer, _), answer in answers]


def _described(consumer: _Consumer, texts: _Texts) -> dict[str, Any]:
    state, explained, link = consumer.state, consumer.explained, consumer.link
    return {
        "kind": "link" if state.lease is None else "lease",
        "name": state.lease or link.get("name") or state.taker or "",
        **{name: link.get(name) for name in ("connection", "user", "peer", "container", "credit", "unsettled", "heldSeconds")},
        "selector": state.selector,
        "priority": state.priority if state.lease is None else None,
        "held": state.held,
        "receives": explained.next is not None,
        "next": explained.next,
        "lookedAt": explained.looked,
        "reasons": texts.of_all(consumer),
    }


class _Texts:
    """Texts of hindrances."""

    def __init__(self, service: BrokerService, name: str, queue: c.QueueState, by_holder: Mapping[int, _Consumer]) -> None:
        self._service, self._name, self._queue, self._by_holder = service, name, queue, by_holder

    def of_all(self, consumer: _Consumer) -> list[dict[str, Any]]:
        explained = consumer.explained
        reasons = [self.of(consumer, hindrance) for hindrance in explained.hindrances]
        behind = self._queue.available - explained.looked
        if explained.looked and behind > 0 and not explained.passed_all:
            reasons[-1]["text"] += f"; not examined: {counted(behind, 'message')} behind these, which may be free"
        return reasons

    def of(self, consumer: _Consumer, hindrance: c.Hindrance) -> dict[str, Any]:
        composed = _TEXTS[hindrance.obstacle]
        messages = counted(hindrance.messages or 0, "message")
        text = composed.format(messages=messages) if isinstance(composed, str) else composed(self, consumer, hindrance)
        reason: dict[str, Any] = {"reason": hindrance.obstacle.value, "text": text}
        if hindrance.messages is not None:
            reason["messages"] = hindrance.messages
        if hindrance.until is not None:
            reason["until"] = hindrance.until
        if hindrance.holder:
            reason["by"] = self._label(hindrance.holder)
        return reason

    def _label(self, holder: int | None) -> str:
        rival = self._by_holder.get(holder or 0)
        return "a consumer that is not listed" if rival is None else rival.label

    def paused(self, consumer: _Consumer, hindrance: c.Hindrance) -> str:
        return f"the queue is paused: `penstock queue resume {self._name}` starts deliveries again"

    def delayed(self, consumer: _Consumer, hindrance: c.Hindrance) -> str:
        return f"no message is due: {counted(self._queue.delayed, 'delayed message')}{_until(', the first ', self._queue.due)}"

    def deferred(self, consumer: _Consumer, hindrance: c.Hindrance) -> str:
        count = counted(self._queue.deferred, "deferred message")
        lists = f"`penstock queue peek {self._name} --states deferred`"
        return f"{count}, and no other one: consumers deferred them, and get them by sequence number ({lists})"

    def inactive(self, consumer: _Consumer, hindrance: c.Hindrance) -> str:
        active = self._label(hindrance.holder) if hindrance.holder else "none now"
        return f"it is inactive: the queue has a single active consumer, {active}"

    def priority(self, consumer: _Consumer, hindrance: c.Hindrance) -> str:
        rival = self._by_holder.get(hindrance.holder or 0)
        if rival is not None and rival.state.priority > consumer.state.priority:
            return f"lower priority: {rival.label} has priority {rival.state.priority}, and comes first"
        return f"{self._label(hindrance.holder)} comes first: its selector is being evaluated"

    def unsettled(self, consumer: _Consumer, hindrance: c.Hindrance) -> str:
        return f"{self._service.settings.amqp_max_unsettled:,} unsettled deliveries, the limit of a link (amqp_max_unsettled)"

    def unsettled_connection(self, consumer: _Consumer, hindrance: c.Hindrance) -> str:
        settings = self._service.settings
        return (
            f"its session or connection has the limit of unsettled deliveries ({settings.amqp_max_unsettled_per_session:,} or "
            f"{settings.amqp_max_unsettled_per_connection:,})"
        )

    def selector(self, consumer: _Consumer, hindrance: c.Hindrance) -> str:
        explained, excluded = consumer.explained, hindrance.messages or 0
        among = counted(explained.looked, "message")
        if explained.looked < self._queue.available:
            among = f"the first {among}" + (", and it has passed all the others" if explained.passed_all else "")
        text = f"its selector matches none of {among}"
        if excluded < explained.looked:
            text = f"its selector excludes {excluded:,} of {among}"
        hints = self._service.matching.compared_hints(self._name, parse(consumer.state.selector or ""))
        return "; ".join([text, *hints])

    def group(self, consumer: _Consumer, hindrance: c.Hindrance) -> str:
        rival = self._by_holder.get(hindrance.holder or 0)
        held_s = None if rival is None else rival.link.get("heldSeconds")
        since = f" for {held_s:,.0f} s" if held_s else ""
        verb = "locked as a session" if hindrance.locked else "held"
        holder = f"{hindrance.group!r} is {verb} by {self._label(hindrance.holder)}{since}"
        return f"{counted(hindrance.messages or 0, 'message')} of groups that other consumers hold: {holder}"

    def other_group(self, consumer: _Consumer, hindrance: c.Hindrance) -> str:
        mine = "the messages of one group" if hindrance.group is None else f"messages of group {hindrance.group!r}"
        return f"{counted(hindrance.messages or 0, 'message')} of other groups or of none: it receives only {mine}"

    def retry(self, consumer: _Consumer, hindrance: c.Hindrance) -> str:
        group = "" if hindrance.group is None else f" of group {hindrance.group!r}"
        retried = f"which is retried{_until(' ', hindrance.until)}"
        return f"{counted(hindrance.messages or 0, 'message')} behind a failed one{group}, {retried}"


def _until(before: str, time_ms: int | None) -> str:
    if time_ms is None:
        return ""
    return f"{before}at {datetime.fromtimestamp(time_ms / 1000, timezone.utc):%Y-%m-%d %H:%M:%S} UTC"


_TEXTS: dict[Obstacle, str | Callable[[_Texts, _Consumer, c.Hindrance], str]] = {
    Obstacle.PAUSED: _Texts.paused,
    Obstacle.EMPTY: "no message waits",
    Obstacle.DELAYED: _Texts.delayed,
    Obstacle.DEFERRED: _Texts.deferred,
    Obstacle.NO_GROUP: "it has no session: it waits for a message group that is free",
    Obstacle.INACTIVE: _Texts.inactive,
    Obstacle.EXCLUSIVE: "another consumer of the queue is exclusive",
    Obstacle.PRIORITY: _Texts.priority,
    Obstacle.DETACHED: "its client is not connected: the broker keeps the link for its return",
    Obstacle.SOCKET: "its socket is blocked: the client does not read from it",
    Obstacle.WINDOW: "its session's window is closed: the client accepts no more frames",
    Obstacle.CREDIT: "no credit: its client asks for no more messages",
    Obstacle.UNSETTLED: _Texts.unsettled,
    Obstacle.UNSETTLED_CONNECTION: _Texts.unsettled_connection,
    Obstacle.SENDING: "messages that it has acquired are being sent",
    Obstacle.RESUMING: "it receives its earlier deliveries again, before others",
    Obstacle.BATCH: "its query holds a batch: the next one follows when Spark has finished it",
    Obstacle.UNREAD: "its query has left several batches unread, and waits before the next one",
    Obstacle.SILENT: f"its query has asked for nothing for {ALIVE // SECOND} s: it may have stopped",
    Obstacle.SELECTOR: _Texts.selector,
    Obstacle.UNEVALUATED: "its selector is not evaluated yet for {messages}",
    Obstacle.EXPIRED: "{messages} expired",
    Obstacle.REFUSED: "it has refused {messages}, which wait for another consumer",
    Obstacle.OTHER_GROUP: _Texts.other_group,
    Obstacle.GROUP: _Texts.group,
    Obstacle.RETRY: _Texts.retry,
}
