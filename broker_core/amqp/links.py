"""Link endpoints (2.6). To resume or reattach, attach a new endpoint with the same name and its `unsettled` map (2.6.3).

Within a connection a second attach of a name steals the first (2.6.1); between connections the application does that.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heappop, heappush
from typing import TYPE_CHECKING, ClassVar

from . import events, serial, states
from .deliveries import Delivery
from .errors import Condition, LocalProtocolError, RemoteProtocolError, Scope
from .performatives import RCV_FIRST, SENDER, SND_MIXED, Attach, Coordinator, DeliveryState, Detach, Error, Flow, Source, Target
from .states import LinkState
from .types import Described, Value

if TYPE_CHECKING:
    from .sessions import Session


#: States of a link whose attach we have to answer.
UNANSWERED = frozenset({LinkState.ATTACH_RCVD, LinkState.DETACH_RCVD_UNANSWERED, LinkState.VIOLATED_UNANSWERED})


class Link:
    """One endpoint, from its attach to its detach. `role` is ours. Numbers have 32 bits and wrap.

    `unsettled` holds our unsettled deliveries by tag, `resumable` those of an earlier endpoint, until each is resumed once
    (2.6.13).
    """

    role: ClassVar[bool]

    def __init__(self, session: Session, name: str) -> None:
        self.session = session
        self.name = name
        self.state = LinkState.DETACHED
        self.handle: int | None = None
        self.local_attach: Attach | None = None
        self.remote_attach: Attach | None = None
        self.unsettled: dict[bytes, Delivery] = {}
        self.resumable: dict[bytes, DeliveryState | None] = {}
        self.delivery_count = 0
        self.link_credit = 0
        self.available = 0
        self.drain = False
        self.closing = False  # our detach had closed=True
        self._violation: RemoteProtocolError | None = None  # our detach has to report it

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.name!r}, {self.state.value})"

    @property
    def source(self) -> Source | Described | None:
        """The source as the sending end describes it (2.6.3). For the target, the receiving end is authoritative."""
        attach = self.local_attach if self.role == SENDER else self.remote_attach
        return attach.source if attach else None

    @property
    def target(self) -> Target | Coordinator | Described | None:
        attach = self.remote_attach if self.role == SENDER else self.local_attach
        return attach.target if attach else None

    @property
    def snd_settle_mode(self) -> int:
        attach = self.local_attach if self.role == SENDER else self.remote_attach
        return attach.snd_settle_mode if attach else SND_MIXED

    @property
    def rcv_settle_mode(self) -> int:
        attach = self.remote_attach if self.role == SENDER else self.local_attach
        return attach.rcv_settle_mode if attach else RCV_FIRST

    @property
    def max_message_size(self) -> int:
        """In octets, by the receiving end; 0 for any."""
        attach = self.remote_attach if self.role == SENDER else self.local_attach
        return (attach.max_message_size or 0) if attach else 0

    def attach(
        self,
        *,
        source: Source | Described | None = None,
        target: Target | Coordinator | Described | None = None,
        snd_settle_mode: int | None = None,
        rcv_settle_mode: int | None = None,
        unsettled: Mapping[bytes, DeliveryState | None] | None = None,
        incomplete_unsettled: bool = False,
        initial_delivery_count: int = 0,
        max_message_size: int | None = None,
        offered_capabilities: tuple[str, ...] = (),
        properties: Mapping[str, Value] | None = None,
    ) -> None:
        """Send our attach. In an answer, omitted modes are the peer's, and a null terminus of ours refuses (see `refuse`). Raises
        LocalProtocolError if the state, the peer's handle-max or its max-frame-size does not allow it.
        """
        state = states.advance(states.LINK, self.state, "s:attach")
        remote = self.remote_attach
        if snd_settle_mode is None:
            snd_settle_mode = remote.snd_settle_mode if remote else SND_MIXED
        if rcv_settle_mode is None:
            rcv_settle_mode = remote.rcv_settle_mode if remote else RCV_FIRST
        handle, begin = self.session.handles.lowest, self.session.remote_begin
        if begin is not None and handle > begin.handle_max:
            raise LocalProtocolError(f"the peer takes {begin.handle_max + 1} links a session")
        attach = Attach(
            name=self.name,
            handle=handle,
            role=self.role,
            snd_settle_mode=snd_settle_mode,
            rcv_settle_mode=rcv_settle_mode,
            source=source,
            target=target,
            unsettled=unsettled,
            incomplete_unsettled=incomplete_unsettled,
            initial_delivery_count=initial_delivery_count if self.role == SENDER else None,
            max_message_size=(self.session.settings.max_message_size if max_message_size is None else max_message_size) or None,
            offered_capabilities=offered_capabilities,
            properties=properties,
        )
        self.session.send(attach)
        self.state, self.handle, self.local_attach = state, handle, attach
        if unsettled is not None:
            self.resumable = dict(unsettled)
        self.session.handles.take(self)
        if self.role == SENDER:
            self.delivery_count = initial_delivery_count
        if self._violation is not None and self.session.settings.answers_violations:
            self.answer_violation()

    def refuse(self, condition: str, description: str | None = None) -> None:
        """Answer an attach with a null terminus, then a closing detach with the error (2.6.3)."""
        assert self.remote_attach is not None
        if self.role == SENDER:
            self.attach(target=self.remote_attach.target)
        else:
            self.attach(source=self.remote_attach.source)
        if "s:error" in states.LINK[self.state]:  # otherwise an error was answered after the attach
            self.detach(closed=True, error=Error(condition=condition, description=description))

    def detach(self, *, closed: bool = True, error: Error | None = None) -> None:
        """Without `closed`, the unsettled deliveries stay for a resume. An error destroys the endpoint (2.6.5)."""
        if self.state in UNANSWERED:
            raise LocalProtocolError("an attach is answered with attach before detach")
        state = states.advance(states.LINK, self.state, "s:detach" if error is None else "s:error")
        assert self.handle is not None
        self.session.send(Detach(handle=self.handle, closed=closed, error=error))
        self._violation = None
        self.closing = closed or error is not None
        self._leave(state, forget=self.closing)

    def adopt(self, detached: Link) -> None:
        """Take over the deliveries of a detached endpoint of the same session: their ids stay valid (2.6.4)."""
        for delivery in detached.unsettled.values():
            delivery.link = self
        self.unsettled, detached.unsettled = detached.unsettled, {}
        self.resumable = detached.resumable

    def forget_all(self) -> None:
        self.drop_unfinished()
        self.session.forget(self)
        self.unsettled, self.resumable = {}, {}

    def _leave(self, state: LinkState, forget: bool) -> None:
        self.state = state
        self.session.outbox.drop(self)
        self.drop_unfinished()
        if forget:
            self.session.forget(self)
        if state is LinkState.DETACHED:
            self.session.handles.release(self)

    # --- for the session

    def on_attach(self, attach: Attach) -> None:
        self.state = states.advance(states.LINK, self.state, "r:attach")
        self.remote_attach = attach
        if self.role != SENDER:
            assert attach.initial_delivery_count is not None
            self.delivery_count = attach.initial_delivery_count

    def on_detach(self, detach: Detach) -> list[events.Event]:
        """Return no event if our own detach has an error to report."""
        state = states.advance(states.LINK, self.state, "r:detach")
        self._leave(state, forget=detach.closed or detach.error is not None)
        return [] if self._violation is not None else [events.Detached(self, detach.closed, detach.error)]

    def violated(self, error: RemoteProtocolError) -> events.Event:
        """Discard the peer's further input (2.6.5). The answer is a detach."""
        self.state = states.advance(states.LINK, self.state, "r:error")
        self.drop_unfinished()
        self.session.forget(self)
        if self.state in (LinkState.VIOLATED, LinkState.VIOLATED_UNANSWERED):
            self._violation = error
        if self.session.settings.answers_violations and self.state is LinkState.VIOLATED:
            self.answer_violation()
        return events.Violated(error, self.session, self)

    def answer_violation(self) -> None:
        if self._violation is None or not self.session.may_send:
            return
        error = as_error(self._violation)
        if self.state in UNANSWERED:
            self._violation = None
            self.refuse(error.condition, error.description)
        else:
            self.detach(closed=True, error=error)

    def drop_unfinished(self) -> None:
        """Discard a half-received delivery."""

    def _count(self, deliveries: int) -> None:
        self.delivery_count = serial.add(self.delivery_count, deliveries)
        self.link_credit = max(0, self.link_credit - deliveries)
        self.available = max(0, self.available - deliveries)

    def on_flow(self, flow: Flow) -> None:
        raise NotImplementedError

    def send_flow(self, echo: bool = False, properties: Mapping[str, Value] | None = None) -> None:
        states.advance(states.LINK, self.state, "s:frame")
        known = self.role == SENDER or self.remote_attach is not None
        self.session.send_flow(
            echo=echo,
            handle=self.handle,
            delivery_count=serial.add(self.delivery_count, 0) if known else None,
            link_credit=self.link_credit,
            available=self.available if self.role == SENDER or self.available else None,
            drain=self.drain,
            properties=properties,
        )


def as_error(error: RemoteProtocolError) -> Error:
    """Return an error that fits any frame: short and in ASCII."""
    text = error.description.encode("ascii", "replace").decode()
    return Error(condition=error.condition, description=text[:200])


def not_allowed(description: str, scope: Scope = Scope.LINK) -> RemoteProtocolError:
    """Return the error for a valid frame that contradicts the agreed terms."""
    return RemoteProtocolError(Condition.NOT_ALLOWED, description, scope)


FREED = 1024  # detaches that cross follow each other closely


class Freed(dict[int, None]):
    """Up to `FREED` numbers that the peer has freed and not used again, oldest first."""

    def add(self, number: int) -> None:
        self.pop(number, None)
        if len(self) >= FREED:
            del self[next(iter(self))]
        self[number] = None


class Handles:
    """Links of a session (2.6.2): `links` and `named` by our handle and name, `remote_links` by the peer's handle."""

    __slots__ = ("_free", "left", "links", "named", "remote_links")

    def __init__(self) -> None:
        self.links: dict[int, Link] = {}
        self.remote_links: dict[int, Link] = {}
        self.named: dict[tuple[bool, str], list[Link]] = {}
        self.left = Freed()  # the peer's
        self._free: list[int] = []  # ours below the highest, a heap

    @property
    def lowest(self) -> int:
        return self._free[0] if self._free else len(self.links)

    @property
    def all_links(self) -> list[Link]:
        """Links with a handle of ours or of the peer's; some occur twice."""
        return [*self.links.values(), *self.remote_links.values()]

    def take(self, link: Link) -> None:
        self.links[heappop(self._free) if self._free else len(self.links)] = link
        self.named.setdefault((link.role, link.name), []).append(link)

    def release(self, link: Link) -> None:
        if link.handle is not None and self.links.get(link.handle) is link:
            del self.links[link.handle]
            heappush(self._free, link.handle)
            same = self.named[link.role, link.name]
            same.remove(link)
            if not same:
                del self.named[link.role, link.name]

    def attached(self, handle: int, link: Link) -> None:
        self.remote_links[handle] = link
        self.left.pop(handle, None)

    def detached(self, handle: int) -> None:
        del self.remote_links[handle]
        self.left.add(handle)

    def clear(self) -> None:
        for collection in (self.links, self.remote_links, self.named, self.left, self._free):
            collection.clear()
