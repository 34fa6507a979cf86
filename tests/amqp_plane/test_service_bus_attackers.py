"""Requests at a listener for Service Bus by clients that try to stop the broker, use its memory, or act for others."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from penstock.broker_core.amqp import Accepted, Declare, Declared, Message, Rejected, Source, Target
from penstock.broker_core.amqp.messages import MAX_SECTIONS
from penstock.broker_core.amqp.performatives import Attach, Detach, Disposition, Flow, Properties, Transfer
from penstock.broker_core.amqp.types import Array, Int, Symbol, Timestamp, UInt, ULong
from penstock.broker_core.amqp_plane import queue_reads
from penstock.broker_core.amqp_plane.service_bus import requests
from penstock.broker_core.amqp_plane.service_bus.cbs import MAX_REQUEST
from penstock.broker_core.amqp_plane.service_bus.peer import MAX_UNCLAIMED_TRANSACTIONS
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS
from penstock.broker_core.engine.columns.states import Cause
from penstock.broker_core.engine.model.policies import Policies, Policy
from penstock.broker_core.messages.encoding.arriving import arrived
from penstock.broker_core.security import keys_file
from penstock.broker_core.security.failed_logins import FAILURES_OF_A_NAME

from ..service.helpers import Clock, enqueue
from .frames import flow, receives, sends, transfer
from .harness import Script, Stage, stage
from .logins import Site, user
from .service_bus import LISTENER, Cbs, attached
from .test_service_bus_requests import CANCEL, LOCK_LOST, PEEK, RECEIVE, RENEW, SCHEDULE, SETTLE, Manager
from .transacting import asked, control, declare

SCHEDULED = Symbol("x-opt-scheduled-enqueue-time")
GOOD = Message(data=[b"x"]).encode()


@pytest.fixture
def s(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> Iterator[Stage]:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,), clock=Clock()) as made:
        made.declare("q", lockTimeout=60_000)
        yield made
    assert not [record for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]


@pytest.fixture
def m(s: Stage) -> Manager:
    return Manager(s)


def peek(m: Manager, first: int = 1, messages: int = 100, session_id: str | None = None) -> list[Any]:
    _, _, body = m.ask(PEEK, {"from-sequence-number": first, "message-count": Int(messages), "session-id": session_id})
    return [] if body is None else body["messages"]


def with_users(tmp_path: Path, rights: dict[str, dict[str, str]]) -> tuple[Site, dict[str, str]]:
    """Return users, and a key of each."""
    made: keys_file.Keys = {}
    for number, who in enumerate(rights):
        made = keys_file.with_new(made, who, bytes([number]) * keys_file.KEY_BYTES)
    keys_file.edit(keys_file.path_of(tmp_path / "users.json"), lambda _: made)
    return Site(tmp_path, {who: user() for who in rights}, rights), {who: several[0] for who, several in made.items()}


# ---- the broker's lock


def test_a_token_for_a_queue_that_a_policy_makes(s: Stage) -> None:
    """The queue is made without the broker's lock, which its creation takes."""
    s.service.state.policies = Policies([Policy("jobs.*", create=True)])
    client = Cbs(s, {"any": "key"})
    assert client.put(client.token("any", "jobs.1"), "sb://localhost/jobs.1")[0] == 202
    assert attached(client.script, sends("jobs.1", 2)) is None
    assert "jobs.1" in s.service.state.queues


def test_a_request_makes_no_queue(s: Stage, m: Manager) -> None:
    s.service.state.policies = Policies([Policy("q", create=True)])
    s.delete("q")
    for operation in (PEEK, SCHEDULE, CANCEL, RECEIVE, RENEW):
        body = {
            "from-sequence-number": 1,
            "message-count": 1,
            "messages": [{"message": GOOD}],
            "sequence-numbers": Array("long", (1,)),
            "receiver-settle-mode": UInt(1),
            "lock-tokens": Array("uuid", (UUID(int=1),)),
        }
        assert m.ask(operation, body)[0] == 404
    assert not s.service.state.queues


def test_a_peek_of_a_rare_session_takes_the_lock_for_a_part_of_the_queue_at_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue_reads, "LOOKED_AT_BLOCKS", 1)
    with stage(tmp_path, fsync="never", listeners=(LISTENER,)) as made:
        made.declare("q", groups="held")
        rare = Message(data=[b"rare"], properties=Properties(group_id="rare")).encode()
        for _ in range(2):
            made.service.submit(enqueue("q", *[b""] * (BLOCK_ROWS + 1)))
            with made.service.turn() as turn:
                turn.enqueue("q", arrived([rare], made.service.wall_ms()))
        m = Manager(made)
        turns = []
        look = queue_reads.unsettled_from
        monkeypatch.setattr(queue_reads, "unsettled_from", lambda *args: turns.append(args) or look(*args))
        assert len(peek(m, session_id="rare")) == 2
        assert len(turns) == 3, "a turn for each block"
        assert len(peek(m, first=2 * BLOCK_ROWS + 1, messages=1000)) == 4
        assert peek(m, session_id="other") == []
        assert len(turns) == 5


# ---- memory


def test_a_peek_reads_no_more_than_its_limit(s: Stage, m: Manager) -> None:
    s.service.submit(enqueue("q", *[bytes(600_000)] * 3, *[b"small"] * 3))
    m.script.frame_size = 1 << 20
    m.script.send(flow(3, 100))
    for first, count in ((1, 1), (3, 4)):
        assert len(peek(m, first)) == count


def test_a_client_that_receives_no_responses_gets_no_more_credit(s: Stage, m: Manager) -> None:
    """Responses in memory are limited by the requests of a link."""
    m.script.send(flow(3, 0))
    request = Message(application_properties={"operation": PEEK}, value={}, has_value=True).encode()
    m.script.send(*(transfer(number, request, 2) for number in range(1, requests.MAX_REQUESTS + 1)))
    for _ in range(requests.MAX_REQUESTS):
        m.script.expect(Disposition)
    m.script.nothing()
    m.script.send(flow(3, 4))
    assert {type(body) for body in m.script.read(4)} == {Transfer}
    m.script.nothing()
    m.script.send(flow(3, 100, 4))
    kinds = [type(body) for body in m.script.read(8)]
    assert (kinds.count(Transfer), kinds.count(Flow)) == (6, 2)


def test_a_response_waits_for_the_window_of_its_session(s: Stage) -> None:
    """The flow that opens the window may name no link."""
    client = Cbs(s, {"any": "key"})
    client.script.send(flow(None, incoming_window=1))
    request = Message(application_properties={"operation": "x"}, value="", has_value=True).encode()
    client.script.send(*(transfer(number, request) for number in range(3)))
    assert sorted(type(body).__name__ for body in client.script.read(4)) == ["Disposition"] * 3 + ["Transfer"]
    client.script.send(flow(None, incoming_window=100))
    for _ in range(2):
        client.script.expect(Transfer)


def test_a_response_that_its_link_is_too_small_for_ends_the_link(s: Stage) -> None:
    script = s.script().usual()
    script.sender("$cbs", 0)
    script.receiver("$cbs", 1, 100, max_message_size=10)
    script.send(transfer(0, Message(application_properties={"operation": "x"}, value="", has_value=True).encode()))
    assert {type(body) for body in script.read(2)} == {Disposition, Detach}


def test_a_client_without_a_token_sends_only_small_requests(s: Stage) -> None:
    script = s.script().usual()
    assert script.sender("$cbs", 0).max_message_size == MAX_REQUEST
    script.receiver("$cbs", 1, 100)
    script.send(transfer(0, Message(value=b"x" * MAX_REQUEST, has_value=True).encode()))
    error = script.expect(Detach, handle=0).error
    assert error is not None
    assert error.condition == "amqp:link:message-size-exceeded"


def test_a_client_without_a_token_begins_few_transactions(s: Stage) -> None:
    """All such clients count as one user, whose transactions are limited."""
    client = Cbs(s, {"any": "key"})
    control(client.script)
    count = MAX_UNCLAIMED_TRANSACTIONS + 2
    client.script.send(*(asked(number, Declare()) for number in range(count)))
    states = [client.script.expect(Disposition).state for _ in range(count)]
    assert [type(state) for state in states] == [Declared] * MAX_UNCLAIMED_TRANSACTIONS + [Rejected] * 2
    client._count = count
    assert client.put(client.token("any", "q"), "sb://localhost/q")[0] == 202
    declare(client.script, count + 1)


def test_a_request_without_a_link_for_its_response_changes_nothing(s: Stage) -> None:
    s.service.submit(enqueue("q", b"one"))
    link = s.service.submit(c.Subscribe("q"))
    rows = s.service.submit(c.Acquire("q", link, 1)).rows
    s.service.submit(c.Release("q", link, rows, Cause.DEFERRED), c.Unsubscribe("q", link))
    client = Cbs(s, {"any": "key"})
    client.put(client.token("any", "q"), "sb://localhost/q")
    client.script.sender("q/$management", 2)
    body = {"sequence-numbers": Array("long", (1,)), "receiver-settle-mode": UInt(0)}
    message = Message(application_properties={"operation": RECEIVE}, value=body, has_value=True)
    client.script.send(transfer(1, message.encode(), 2))
    state = client.script.expect(Disposition).state
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert "no link receives the responses of 'q'" in str(state.error.description)
    assert s.counts("q") == {"deferred": 1}


# ---- odd values


def test_a_time_that_amqp_cannot_express_is_refused(s: Stage, m: Manager) -> None:
    odd = Message(data=[b"x"], message_annotations={SCHEDULED: ULong((1 << 64) - 1)}).encode()
    assert m.ask(SCHEDULE, {"messages": [{"message": odd}]})[0] == 400
    m.script.sender("q", 4)
    m.script.send(transfer(m._count + 1, odd, 4))
    assert isinstance(m.script.expect(Disposition).state, Rejected)
    m._count += 1
    before = Message(data=[b"x"], message_annotations={SCHEDULED: Timestamp(1 - (1 << 63))}).encode()
    assert m.ask(SCHEDULE, {"messages": [{"message": before}]})[0] == 200
    assert s.counts("q") == {"available": 1}


def test_a_lock_token_that_is_named_twice(s: Stage, m: Manager) -> None:
    s.service.submit(enqueue("q", b"one"))
    m.script.receiver("q", 4, 1)
    tag = m.script.expect(Transfer).delivery_tag
    assert tag is not None
    tokens = {"lock-tokens": Array("uuid", (UUID(bytes_le=tag),) * 2)}
    until = s.service.wall_ms() + 60_000
    assert m.ask(RENEW, tokens)[2]["expirations"].items == (until, until)
    assert m.ask(SETTLE, {**tokens, "disposition-status": "completed"})[0] == 200
    assert s.counts("q") == {"archived": 1}
    assert m.ask(SETTLE, {**tokens, "disposition-status": "completed"})[:2] == (410, LOCK_LOST)


def test_a_message_of_as_many_sections_as_are_allowed_leaves(s: Stage, m: Manager) -> None:
    """The broker adds sections to it."""
    annotated = Message(message_annotations={Symbol("x-opt-a"): 1}, data=[b""] * (MAX_SECTIONS - 1)).encode()
    m.script.sender("q", 4)
    m.script.send(transfer(m._count + 1, annotated, 4))
    assert m.script.expect(Disposition).state == Accepted()
    m._count += 1
    assert len(peek(m)) == 1
    m.script.receiver("q", 5, 1)
    assert m.script.expect(Transfer).handle == 5


# ---- acting for others


def test_a_scheduled_message_in_another_user_s_name_is_refused(tmp_path: Path) -> None:
    site, keys = with_users(tmp_path, {"ann": {"q": "send"}})
    with stage(tmp_path, access=site.access, fsync="never", listeners=(LISTENER,)) as made:
        made.declare("q")
        m = Manager(made, keys=keys)
        for name, status in ((b"bob", 401), (b"ann", 200), (None, 200)):
            message = Message(data=[b"x"], properties=Properties(user_id=name)).encode()
            assert m.ask(SCHEDULE, {"messages": [{"message": GOOD}, {"message": message}]})[0] == status
        assert made.counts("q") == {"available": 4}


def test_locks_of_deferred_messages_end_with_the_right_to_receive(tmp_path: Path) -> None:
    site, keys = with_users(tmp_path, {"ann": {"q": "send,receive"}})
    with stage(tmp_path, access=site.access, fsync="never", listeners=(LISTENER,), clock=Clock()) as made:
        made.declare("q")
        made.service.submit(enqueue("q", b"one"))
        link = made.service.submit(c.Subscribe("q"))
        rows = made.service.submit(c.Acquire("q", link, 1)).rows
        made.service.submit(c.Release("q", link, rows, Cause.DEFERRED), c.Unsubscribe("q", link))
        m = Manager(made, keys=keys)
        body = {"sequence-numbers": Array("long", (1,)), "receiver-settle-mode": UInt(1)}
        assert m.ask(RECEIVE, body)[0] == 200
        assert made.counts("q") == {"acquired": 1}
        site.edit({"ann": user()}, {"ann": {"q": "send"}})
        made.until(lambda: made.counts("q") == {"deferred": 1}, "the lock ends")
        assert m.ask(RECEIVE, body)[0] == 401


def test_failed_logins_of_others_at_the_address_do_not_keep_out_a_valid_token(tmp_path: Path) -> None:
    site, keys = with_users(tmp_path, {"ann": {"q": "send"}})
    with stage(tmp_path, access=site.access, fsync="never", listeners=(LISTENER,)) as made:
        made.declare("q")
        guesser = Cbs(made, {"ann": "a guess"})
        answers = [guesser.put(guesser.token("ann", "q"), "sb://localhost/q") for _ in range(FAILURES_OF_A_NAME + 1)]
        assert {status for status, _ in answers} == {401}
        assert "too many" in answers[-1][1]
        client = Cbs(made, keys)
        assert client.put(client.token("ann", "q"), "sb://localhost/q")[0] == 202


# ---- names


def test_a_token_for_a_subscription_in_another_case(s: Stage) -> None:
    s.declare("news.audit")
    client = Cbs(s, {"any": "key"})
    assert client.put(client.token("any", "news/subscriptions/audit"), "sb://localhost/news/SUBSCRIPTIONS/audit")[0] == 202
    assert attached_receiver(client.script, "news/Subscriptions/audit", 2)


def attached_receiver(script: Script, address: str, handle: int) -> bool:
    script.send(receives(address, handle))
    script.expect(Attach)
    script.nothing()
    return True


def test_an_address_of_thousands_of_parts_is_refused(s: Stage) -> None:
    """Claims are compared part by part: the comparison took seconds, also without a token."""
    client = Cbs(s, {"any": "key"})
    long = "/".join("a" * 30_000)
    error = attached(client.script, sends("q", 2, target=Target(address=long)))
    assert "more than 8 parts" in error.description
    assert client.put(client.token("any", "q"), f"sb://localhost/{long[:20_000]}")[0] == 400


def test_a_part_of_a_name_that_is_encoded_is_a_part(s: Stage) -> None:
    """A token for `q%2F$management` is for a node of `q`."""
    client = Cbs(s, {"any": "key"})
    assert client.put(client.token("any", "q%2F$management"), "sb://localhost/q%2F$management")[0] == 202
    client.script.receiver("q/$management", 2, target=Target(address="me"), source=Source(address="q/$management"))
    assert attached(client.script, sends("q", 3)).condition == "amqp:unauthorized-access"


def test_a_dead_letter_queue_is_peeked_with_either_right(tmp_path: Path) -> None:
    site, keys = with_users(tmp_path, {"ann": {"q": "receive,browse", "dead": "receive"}})
    with stage(tmp_path, access=site.access, fsync="never", listeners=(LISTENER,)) as made:
        made.declare("dead")
        made.declare("q", deadLetterQueue="dead")
        made.service.submit(enqueue("dead", b"one"))
        assert len(peek(Manager(made, "q/$DeadLetterQueue", keys))) == 1
