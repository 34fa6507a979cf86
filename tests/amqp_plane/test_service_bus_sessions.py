"""Sessions at a listener for Service Bus: attaches that wait, locks that end, and requests of each kind with bad input."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.broker_core.amqp import Message, Source, decode_message
from penstock.broker_core.amqp.performatives import (
    Accepted,
    Attach,
    Detach,
    Disposition,
    Properties,
    Rejected,
    Transfer,
)
from penstock.broker_core.amqp.types import Array, Symbol, Timestamp, UInt
from penstock.broker_core.amqp_plane.service_bus.sessions import LISTS_ALL, MAX_ID, WAIT_MS
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.limits import MAX_GROUP_STATE
from penstock.broker_core.messages.encoding.arriving import arrived
from penstock.broker_core.service.turn import Turn

from ..service.helpers import Clock
from .frames import detach, flow, receives, says, sends
from .harness import Script, Stage, stage
from .service_bus import LISTENER
from .test_explaining import explained
from .test_service_bus_requests import PEEK, RENEW, SETTLE, Manager

FILTER, UNTIL = Symbol("com.microsoft:session-filter"), "com.microsoft:locked-until-utc"
CANNOT_BE_LOCKED, LOCK_LOST = "com.microsoft:session-cannot-be-locked", "com.microsoft:session-lock-lost"
RENEW_SESSION, LIST = "com.microsoft:renew-session-lock", "com.microsoft:get-message-sessions"
GET_STATE, SET_STATE = "com.microsoft:get-session-state", "com.microsoft:set-session-state"
LINK = 4  # the first handle that a Manager leaves free


@pytest.fixture
def s(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,), clock=Clock()) as made:
        made.declare("q", groups="held", lockTimeout=60_000)
        made.declare("plain")
        yield made


@pytest.fixture
def m(s: Stage) -> Manager:
    return Manager(s)


def send(s: Stage, *sessions: str | None) -> None:
    """Send a message of each session; its body is the session."""
    messages = [Message(data=[(id_ or "").encode()], properties=Properties(group_id=id_)).encode() for id_ in sessions]
    with s.service.turn() as turn:
        turn.enqueue("q", arrived(messages, s.service.wall_ms()))
    s.settle()


def asks(session: Any, handle: int = LINK, **fields: Any) -> Attach:
    return receives("q", handle, name=f"session {handle}", source=Source(address="q", filter={FILTER: session}), **fields)


def accept(m: Manager, session: str | None, handle: int = LINK, credit: int = 0) -> str:
    """Accept a session; return its id."""
    m.script.send(asks(session, handle))
    answer = m.script.expect(Attach)
    assert isinstance(answer.source, Source)
    assert answer.source.filter is not None
    (session_id,) = answer.source.filter.values()
    assert isinstance(session_id, str)
    if credit:
        m.script.send(flow(handle, credit))
    return session_id


def refused(m: Manager, *frames: Any, handle: int = LINK) -> tuple[str, str]:
    """Attach a link that is refused; return condition and description."""
    m.script.send(*frames)
    return refusal(m.script, handle)


def refusal(script: Script, handle: int = LINK) -> tuple[str, str]:
    answer = script.expect(Attach)
    assert answer.source is None, "otherwise Java's SDK does not read the reason"
    error = script.expect(Detach, closed=True).error
    assert error is not None
    script.send(detach(handle))
    return error.condition, str(error.description)


def bodies(m: Manager, count: int) -> list[str]:
    return [(decode_message(m.script.expect_message()).data[0]).decode() for _ in range(count)]


# ---- attaches


def test_the_answer_names_the_session_and_the_end_of_its_lock(s: Stage, m: Manager) -> None:
    send(s, None, "a", "b", "a")
    m.script.send(asks(None))
    answer = m.script.expect(Attach)
    assert isinstance(answer.source, Source)
    assert answer.source.filter == {FILTER: "a"}
    assert answer.properties is not None
    ticks = answer.properties[UNTIL]
    assert (ticks - 621355968000000000) / 10_000 == s.service.wall_ms() + 60_000
    m.script.send(flow(LINK, 5))
    first = decode_message(m.script.expect_message())
    assert (first.data, bodies(m, 1)) == ([b"a"], ["a"])
    assert first.message_annotations is not None
    assert first.message_annotations["x-opt-locked-until"] == s.service.wall_ms() + 60_000
    m.script.nothing()


def test_an_attach_waits_for_the_next_session_and_the_first_one_gets_it(s: Stage, m: Manager) -> None:
    late = Manager(s, container_id="late")
    m.script.send(asks(None), flow(LINK, 5))
    m.script.nothing()
    late.script.send(asks(None))
    late.script.nothing()
    waits = explained(s)["session 4"]  # both links have this name
    assert [reason["reason"] for reason in waits["reasons"]] == ["no-group", "empty"]
    send(s, "a")
    assert m.script.expect(Attach).source.filter == {FILTER: "a"}  # type: ignore[union-attr]
    assert bodies(m, 1) == ["a"], "the credit that it has granted before the answer is valid"
    late.script.nothing()
    send(s, "a", "b")
    assert late.script.expect(Attach).source.filter == {FILTER: "b"}  # type: ignore[union-attr]
    late.script.send(flow(LINK, 5))
    assert (bodies(m, 1), bodies(late, 1)) == (["a"], ["b"])


@pytest.mark.parametrize("wait_ms", [None, 5000])
def test_an_attach_waits_for_a_limited_time(s: Stage, m: Manager, wait_ms: int | None) -> None:
    m.script.send(asks(None, properties={"com.microsoft:timeout": UInt(wait_ms)} if wait_ms else None))
    m.script.nothing()
    s.pass_time((wait_ms or WAIT_MS) / 1000 - 1)
    m.script.nothing()
    s.pass_time(2)
    assert refusal(m.script)[0] == "com.microsoft:timeout"
    send(s, "a")
    assert accept(m, None, LINK + 1) == "a", "the link that has given up holds nothing"


def test_one_link_searches_for_all_that_wait(s: Stage) -> None:
    """Each arrival for a session with a receiver is news to all links that wait."""
    owner = Manager(s)
    accept(owner, "a")
    waiting = [Manager(s, container_id=f"waits {number}") for number in range(4)]
    for each in waiting:
        each.script.send(asks(None))
        each.script.nothing()
    executed = []
    with pytest.MonkeyPatch.context() as patch:
        execute = Turn.execute

        def counted(turn: Turn, command: c.Command[Any]) -> Any:
            executed.append(type(command))
            return execute(turn, command)

        patch.setattr(Turn, "execute", counted)
        send(s, "a")
        assert executed.count(c.LockGroup) == 1
        send(s, "b", "c")
        assert executed.count(c.LockGroup) == 4, "two find a session, and one searches in vain for the others"
    answers = [each.script.expect(Attach) for each in waiting[:2]]
    assert [answer.source.filter for answer in answers] == [{FILTER: "b"}, {FILTER: "c"}]  # type: ignore[union-attr]
    for each in waiting[2:]:
        each.script.nothing()
    owner.script.send(detach(LINK))
    owner.script.expect(Detach)
    assert waiting[2].script.expect(Attach).source.filter == {FILTER: "a"}  # type: ignore[union-attr]


def test_a_link_that_waits_may_go_and_its_queue_too(s: Stage, m: Manager) -> None:
    m.script.send(asks(None), detach(LINK))
    m.script.expect(Attach)
    m.script.expect(Detach)
    m.script.send(asks(None, LINK + 1))
    m.script.nothing()
    lost = Manager(s, container_id="lost")
    lost.script.send(asks(None))
    lost.script.drop()
    s.until(lambda: len(s.service.state.queues["q"].consumers.subscriptions) == 1, "one link waits")
    s.delete("q")
    assert refusal(m.script, LINK + 1)[0] == "amqp:resource-deleted"


def test_a_session_has_one_receiver(s: Stage, m: Manager) -> None:
    send(s, "a", "b")
    assert accept(m, "a") == "a"
    other = Manager(s, container_id="other")
    condition, text = refused(other, asks("a"))
    assert (condition, "group 'a' of queue 'q' is held by" in text) == (CANNOT_BE_LOCKED, True)
    assert accept(other, None, LINK + 1) == "b"
    assert accept(other, "no messages yet", LINK + 2, credit=5) == "no messages yet"
    other.script.send(receives("q", LINK + 3, name="plain"), flow(LINK + 3, 5))
    other.script.expect(Attach)
    assert explained(s)["plain"]["reasons"][0]["text"].startswith("2 messages of groups that other consumers hold: 'a' is locked")
    send(s, "no messages yet", None)
    assert sorted(bodies(other, 2)) == ["", "no messages yet"], "a receiver without a session gets the other messages"
    m.script.drop()
    s.until(lambda: len(s.service.state.queues["q"].groups.locks) == 2, "the lock ended with its connection")  # type: ignore[union-attr]
    assert bodies(other, 1) == ["a"]
    assert refused(other, asks("a", LINK + 4), handle=LINK + 4)[0] == CANNOT_BE_LOCKED, "a plain receiver holds its message"


def test_links_of_several_amqp_sessions_may_have_one_name(s: Stage, m: Manager) -> None:
    """Java's SDK names a link as the session that it asks for, also on several queues."""
    m.script.send(asks("a"))
    m.script.expect(Attach, 0)
    m.script.begin(1)
    m.script.send(asks("b"), channel=1)
    m.script.expect(Attach, 1)
    other = Manager(s)
    other.script.send(asks("c"))
    other.script.expect(Attach)
    for client in (m, other):
        client.script.nothing()
    assert [m.ask(GET_STATE, {"session-id": session})[0] for session in "ab"] == [200, 200]
    m.script.send(detach(LINK), asks("d", LINK))
    m.script.expect(Detach, 0)
    m.script.expect(Attach, 0)
    assert [m.ask(GET_STATE, {"session-id": session})[0] for session in "abd"] == [410, 200, 200]


@pytest.mark.parametrize("session", [7, "", "x" * (MAX_ID + 1), b"octets"])
def test_a_session_id_is_a_text(m: Manager, session: Any) -> None:
    condition, text = refused(m, asks(session))
    assert (condition, "a session id is a text of 1 to 128 characters" in text) == ("amqp:invalid-field", True)


def test_a_queue_without_groups_has_no_sessions(s: Stage) -> None:
    plain = Manager(s, "plain")
    attach = receives("plain", LINK, source=Source(address="plain", filter={FILTER: None}))
    condition, text = refused(plain, attach)
    assert (condition, "declare it again with `--option groups=held`" in text) == ("amqp:invalid-field", True)
    assert not s.service.state.queues["plain"].consumers.subscriptions
    assert plain.ask(LIST, {"last-updated-time": Timestamp(LISTS_ALL), "skip": 0, "top": 9})[0] == 400


# ---- locks


def test_a_lock_that_ends_detaches_its_link_and_frees_the_messages(s: Stage, m: Manager) -> None:
    send(s, "a", "a")
    accept(m, "a", credit=1)
    tag = m.script.expect(Transfer).delivery_tag
    assert tag is not None
    s.pass_time(50)
    status, _, body = m.ask(RENEW_SESSION, {"session-id": "a"})
    assert (status, body) == (200, {"expiration": s.service.wall_ms() + 60_000})
    s.pass_time(50)
    tokens = {"lock-tokens": Array("uuid", (UUID(bytes_le=tag),))}
    assert m.ask(RENEW, tokens)[2]["expirations"].items == (s.service.wall_ms() + 60_000,), "a message's lock is the session's"
    s.pass_time(61)
    error = m.script.expect(Detach, handle=LINK).error
    assert error is not None
    assert error.condition == LOCK_LOST
    m.script.send(detach(LINK))
    assert s.messages("q") == [(0, 1), (1, 0)], "the delivered message counts an attempt"
    assert m.ask(RENEW_SESSION, {"session-id": "a"})[:2] == (410, LOCK_LOST)
    assert m.ask(SETTLE, {**tokens, "disposition-status": "completed"})[0] == 410
    assert accept(m, None, LINK + 1, credit=1) == "a"
    again = decode_message(m.script.expect_message())
    assert again.header is not None
    assert again.header.delivery_count == 1


def test_an_outcome_after_the_end_of_the_lock_is_answered_with_the_reason(s: Stage, m: Manager) -> None:
    send(s, "a")
    accept(m, "a", credit=1)
    number = m.script.expect(Transfer).delivery_id
    assert number is not None
    assert s.clock is not None
    s.clock.advance(61)  # before a tick of the plane
    s.service.submit(c.Tick())
    m.script.send(says(Accepted(), number, settled=False))
    frames = [m.script._frame() for _ in range(2)]
    kinds = {type(frame[1]): frame[1] for frame in frames if frame is not None}
    assert kinds.keys() <= {Disposition, Detach}
    states = [body.state for body in kinds.values() if isinstance(body, Disposition)]
    assert all(isinstance(state, Rejected) and state.error.condition == LOCK_LOST for state in states)  # type: ignore[union-attr]
    assert s.counts("q") == {"available": 1}


def test_settling_by_token_and_the_order_of_a_session(s: Stage, m: Manager) -> None:
    send(s, "a", "b", "a")
    accept(m, None, credit=9)
    first, second = m.script.expect(Transfer), m.script.expect(Transfer)
    assert first.delivery_tag is not None
    assert second.delivery_tag is not None
    tokens = {"lock-tokens": Array("uuid", (UUID(bytes_le=first.delivery_tag),)), "session-id": "a"}
    assert m.ask(SETTLE, {**tokens, "disposition-status": "abandoned"})[0] == 200
    again = m.script.expect(Transfer)
    assert again.delivery_tag is not None
    assert again.delivery_tag[:8] == first.delivery_tag[:8]
    assert (
        m.ask(SETTLE, {"lock-tokens": Array("uuid", (UUID(bytes_le=again.delivery_tag),)), "disposition-status": "completed"})[0]
        == 200
    )
    assert s.counts("q") == {"acquired": 1, "available": 1, "archived": 1}


# ---- requests


def test_states_belong_to_the_receiver_of_their_session(s: Stage, m: Manager) -> None:
    accept(m, "a")
    accept(m, "b", LINK + 1)
    assert m.ask(GET_STATE, {"session-id": "a"})[2] == {"session-state": None}
    assert m.ask(SET_STATE, {"session-id": "a", "session-state": b"\0half"})[0] == 200
    assert m.ask(GET_STATE, {"session-id": "a"})[2] == {"session-state": b"\0half"}
    assert m.ask(GET_STATE, {"session-id": "b"})[2] == {"session-state": None}
    named = f"session {LINK + 1}"
    assert m.ask(GET_STATE, {"session-id": "a"}, associated_link_name=named)[:2] == (410, LOCK_LOST), (
        "the link has another session"
    )
    other = Manager(s, container_id="other")
    for operation, more in ((GET_STATE, {}), (SET_STATE, {"session-state": b"mine"}), (RENEW_SESSION, {})):
        assert other.ask(operation, {"session-id": "a", **more})[:2] == (410, LOCK_LOST), "another connection has the session"
        assert other.ask(operation, {"session-id": "c", **more})[:2] == (410, LOCK_LOST), "no receiver has the session"
    assert m.ask(SET_STATE, {"session-id": "a", "session-state": None})[0] == 200
    assert m.ask(GET_STATE, {"session-id": "a"})[2] == {"session-state": None}


def test_a_state_has_a_limit(s: Stage) -> None:
    m = Manager(s, max_frame_size=65536)
    accept(m, "a")
    assert m.ask(SET_STATE, {"session-id": "a", "session-state": bytes(MAX_GROUP_STATE)})[0] == 200
    for size in (MAX_GROUP_STATE + 1, 1 << 20):
        state = {"session-id": "a", "session-state": bytes(size)}
        assert m.ask(SET_STATE, state)[:2] == (403, "amqp:resource-limit-exceeded")
    assert m.ask(GET_STATE, {"session-id": "a"})[2] == {"session-state": bytes(MAX_GROUP_STATE)}


def test_the_list_of_sessions(s: Stage, m: Manager) -> None:
    everything = {"last-updated-time": Timestamp(LISTS_ALL), "skip": 0, "top": 100}
    assert m.ask(LIST, everything)[0] == 204
    send(s, "a", None, "b", "a")
    accept(m, "c")
    m.ask(SET_STATE, {"session-id": "c", "session-state": b"x"})
    assert m.ask(LIST, everything)[2] == {"skip": 3, "sessions-ids": Array("string", ("a", "b", "c"))}
    assert m.ask(LIST, {**everything, "skip": 1, "top": 1})[2] == {"skip": 2, "sessions-ids": Array("string", ("b",))}
    assert m.ask(LIST, {**everything, "skip": 2})[2] == {"skip": 3, "sessions-ids": Array("string", ("c",))}
    assert m.ask(LIST, {**everything, "skip": 3})[0] == 204
    now = s.service.wall_ms()
    assert m.ask(LIST, {**everything, "last-updated-time": Timestamp(now - 1)})[2]["sessions-ids"].items == ("c",)
    assert m.ask(LIST, {**everything, "last-updated-time": Timestamp(now)})[0] == 204


def test_a_peek_of_one_session(s: Stage, m: Manager) -> None:
    send(s, "a", "b", "a", "b")
    peek = {"from-sequence-number": 2, "message-count": 9}
    for session, numbers in (("a", [3]), ("b", [2, 4]), ("c", None), (None, [2, 3, 4])):
        status, _, body = m.ask(PEEK, {**peek, "session-id": session})
        assert status == (204 if numbers is None else 200)
        messages = [decode_message(entry["message"]) for entry in body["messages"]] if numbers else []
        assert [message.message_annotations["x-opt-sequence-number"] for message in messages] == (numbers or [])  # type: ignore[index]
    assert m.ask(PEEK, {**peek, "session-id": 7})[0] == 400


@pytest.mark.parametrize(
    ("operation", "body"),
    [
        *((operation, "no map") for operation in (RENEW_SESSION, GET_STATE, SET_STATE, LIST)),
        *((operation, {}) for operation in (RENEW_SESSION, GET_STATE, SET_STATE, LIST)),
        *((operation, {"session-id": 7}) for operation in (RENEW_SESSION, GET_STATE, SET_STATE)),
        (RENEW_SESSION, {"session-id": ""}),
        (SET_STATE, {"session-id": "a", "session-state": "text"}),
        (LIST, {"last-updated-time": 0, "skip": "0", "top": 1}),
        (LIST, {"last-updated-time": None, "skip": 0, "top": 1}),
    ],
)
def test_a_bad_request_is_answered_and_changes_nothing(m: Manager, operation: str, body: Any) -> None:
    accept(m, "a")
    assert m.ask(operation, body)[:2] == (400, "amqp:invalid-field")
    assert m.ask(GET_STATE, {"session-id": "a"})[2] == {"session-state": None}, "the link continues"


def test_sessions_of_a_sender_are_no_sessions(m: Manager) -> None:
    """A filter at the wrong end is ignored."""
    m.script.send(sends("q", LINK, source=Source(address="here", filter={FILTER: "a"})))
    m.script.expect(Attach)
