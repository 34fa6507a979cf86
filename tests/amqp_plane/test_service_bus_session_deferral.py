"""Deferred messages of sessions at a listener for Service Bus: their receivers, and the ends of their locks."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker_core.amqp import decode_message
from penstock.broker_core.amqp.performatives import Attach, Detach, Modified, Transfer
from penstock.broker_core.amqp.types import Array, UInt
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause

from ..service.helpers import enqueue
from .frames import detach, flow, receives, says
from .harness import Stage
from .test_service_bus_requests import RECEIVE, RENEW, SETTLE, Manager
from .test_service_bus_sessions import LINK, LOCK_LOST, RENEW_SESSION, accept, bodies, m, s, send

__all__ = ["m", "s"]  # fixtures


def defer(s: Stage, m: Manager, session: str, handle: int, *expected: int) -> None:
    """Accept a session, and defer its first message. `expected`: messages that are deferred then."""
    accept(m, session, handle, credit=1)
    number = m.script.expect(Transfer).delivery_id
    assert number is not None
    m.script.send(says(Modified(delivery_failed=True, undeliverable_here=True), number, settled=True))
    s.until(lambda: s.counts("q").get("deferred") == len(expected), "the message is deferred")


def numbers(*several: int, session: str | None = None, mode: int = 1) -> dict[str, Any]:
    """Return the body of a request for deferred messages."""
    wanted = {"sequence-numbers": Array("long", several), "receiver-settle-mode": UInt(mode)}
    return wanted if session is None else {**wanted, "session-id": session}


def received(m: Manager, *several: int, session: str, **more: object) -> dict[str, Any]:
    """Receive deferred messages; return the body of a request that names their locks and their session."""
    status, _, body = m.ask(RECEIVE, numbers(*several, session=session), **more)
    assert status == 200
    tokens = tuple(entry["lock-token"] for entry in body["messages"])
    return {"lock-tokens": Array("uuid", tokens), "session-id": session, "disposition-status": "completed"}


def test_a_deferred_message_comes_to_the_receiver_of_its_session(s: Stage, m: Manager) -> None:
    send(s, "a", "b", "a")
    defer(s, m, "a", LINK, 1)
    m.script.send(flow(LINK, 1, 1))
    assert bodies(m, 1) == ["a"], "the session continues behind it"
    wanted = numbers(1, session="a")
    other = Manager(s, container_id="other")
    assert other.ask(RECEIVE, wanted)[:2] == (410, LOCK_LOST)
    assert accept(other, "b") == "b"
    assert other.ask(RECEIVE, {**wanted, "session-id": "b"})[:2] == (404, "com.microsoft:message-not-found")
    for missing in (7, 1 << 40, -5):
        assert m.ask(RECEIVE, {**wanted, "sequence-numbers": Array("long", (1, missing))})[0] == 404
    ((answer,),) = m.ask(RECEIVE, wanted)[2].values()
    assert decode_message(answer["message"]).data == [b"a"]
    tokens = {"lock-tokens": Array("uuid", (answer["lock-token"],)), "session-id": "a", "disposition-status": "completed"}
    assert m.ask(SETTLE, tokens)[0] == 200
    assert s.counts("q") == {"acquired": 1, "available": 1, "archived": 1}


@pytest.mark.parametrize("mode", [0, 1])
def test_a_deferred_message_of_a_session_needs_its_receiver(s: Stage, m: Manager, mode: int) -> None:
    """Without a session in the request, a client receives messages without a session."""
    send(s, "a", None)
    defer(s, m, "a", LINK, 1)
    m.script.send(receives("q", LINK + 1, name="plain"), flow(LINK + 1, 1))
    m.script.expect(Attach)
    number = m.script.expect(Transfer).delivery_id
    assert number is not None
    m.script.send(says(Modified(delivery_failed=True, undeliverable_here=True), number, settled=True))
    s.until(lambda: s.counts("q") == {"deferred": 2}, "both messages are deferred")
    for client in (m, Manager(s, container_id="other")):
        for several in ((1,), (2, 1)):
            assert client.ask(RECEIVE, numbers(*several, mode=mode))[:2] == (410, LOCK_LOST)
        assert client.ask(RECEIVE, numbers(2, 3, mode=mode))[0] == 404
    assert m.ask(RECEIVE, numbers(1, 2, session="a", mode=mode))[0] == 404, "message 2 is of no session"
    assert s.counts("q") == {"deferred": 2}
    assert m.ask(RECEIVE, numbers(2, mode=mode))[0] == 200
    assert m.ask(RECEIVE, numbers(1, session="a", mode=mode))[0] == 200
    s.settle()
    assert s.counts("q") == {"acquired": 2} if mode else {"archived": 2}


def test_a_request_for_a_session_of_another_link(s: Stage, m: Manager) -> None:
    send(s, "a", "b")
    defer(s, m, "a", LINK, 1)
    defer(s, m, "b", LINK + 1, 1, 2)
    mine, other = {"associated_link_name": f"session {LINK}"}, {"associated_link_name": f"session {LINK + 1}"}
    assert m.ask(RECEIVE, numbers(1, session="a"), **other)[:2] == (410, LOCK_LOST)
    locks = received(m, 1, session="a", **mine)
    for operation in (SETTLE, RENEW):
        assert m.ask(operation, {**locks, "session-id": "b"})[:2] == (410, LOCK_LOST)
        assert m.ask(operation, {**locks, "session-id": "c"})[:2] == (410, LOCK_LOST)
    assert m.ask(SETTLE, locks)[0] == 200
    assert s.counts("q") == {"deferred": 1, "archived": 1}


def test_a_deferred_message_has_the_lock_of_its_session(s: Stage, m: Manager) -> None:
    send(s, "a", "a")
    defer(s, m, "a", LINK, 1)
    locks = received(m, 1, session="a")
    for _ in range(2):
        s.pass_time(50)
        assert m.ask(RENEW_SESSION, {"session-id": "a"})[0] == 200
    assert s.counts("q") == {"available": 1, "acquired": 1}, "the renewal of the session is also its own"
    s.pass_time(50)
    assert m.ask(RENEW, locks)[2]["expirations"].items == (s.service.wall_ms() + 60_000,)
    s.pass_time(61)
    m.script.expect(Detach, handle=LINK)
    m.script.send(detach(LINK))
    assert s.counts("q") == {"available": 1, "deferred": 1}
    for operation in (SETTLE, RENEW):
        assert m.ask(operation, locks)[:2] == (410, LOCK_LOST)
    accept(m, "a", LINK + 1)
    assert m.ask(SETTLE, locks)[:2] == (410, LOCK_LOST), "the lock is one of the former receiver"
    assert m.ask(SETTLE, received(m, 1, session="a"))[0] == 200


@pytest.mark.parametrize("how", ["closed", "dropped"])
def test_the_end_of_a_session_makes_its_messages_deferred_again(s: Stage, m: Manager, how: str) -> None:
    send(s, "a")
    defer(s, m, "a", LINK, 1)
    locks = received(m, 1, session="a")
    if how == "closed":
        m.script.send(detach(LINK))
        m.script.expect(Detach)
        assert m.ask(SETTLE, locks)[:2] == (410, LOCK_LOST)
    else:
        m.script.drop()
    s.until(lambda: s.counts("q") == {"deferred": 1}, "the message is deferred again")
    assert s.messages("q") == [(0, 2)], "its client has received it, so it counts an attempt"
    later = Manager(s, container_id="later")
    accept(later, "a")
    assert later.ask(SETTLE, {**received(later, 1, session="a"), "disposition-status": "abandoned"})[0] == 200
    assert s.messages("q") == [(0, 3)]
    assert later.ask(SETTLE, received(later, 1, session="a"))[0] == 200
    assert s.counts("q") == {"archived": 1}


def test_a_queue_without_groups_ignores_sessions_of_deferred_messages(s: Stage) -> None:
    """JavaScript's SDK names the session of each deferred message that it settles."""
    plain = Manager(s, "plain")
    s.service.submit(enqueue("plain", b"one"))
    link = s.service.submit(c.Subscribe("plain"))
    s.service.submit(c.Acquire("plain", link, 1), c.Release("plain", link, RowSet.single(0), Cause.DEFERRED))
    status, _, body = plain.ask(RECEIVE, numbers(1))
    assert status == 200
    tokens = Array("uuid", (body["messages"][0]["lock-token"],))
    assert plain.ask(RENEW, {"lock-tokens": tokens, "session-id": "a"})[0] == 200
    assert plain.ask(SETTLE, {"lock-tokens": tokens, "session-id": "a", "disposition-status": "completed"})[0] == 200
