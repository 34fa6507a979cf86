"""Q24: requests for deferred messages: locks that end, expired, damaged and large messages, other users and deleted queues."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import UUID

import numpy as np
import pytest

from penstock.broker_core.amqp import Modified, Source, Target, decode_message
from penstock.broker_core.amqp.performatives import Detach, Disposition, Transfer
from penstock.broker_core.amqp.types import Array, UInt
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.attributes import Attributes
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.columns.states import Cause

from ..service.helpers import Clock, enqueue
from .frames import detach
from .harness import Stage, stage
from .service_bus import LISTENER
from .test_service_bus_requests import LOCK_LOST, RECEIVE, RENEW, SETTLE, Manager

NOT_FOUND = "com.microsoft:message-not-found"
LOCK, DELETE = 1, 0


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,), clock=Clock()) as made:
        made.declare("q", lockTimeout=60_000)
        made.declare("other")
        yield made


@pytest.fixture
def m(made: Stage) -> Manager:
    return Manager(made)


def deferred(made: Stage, *bodies: bytes, attributes: Attributes | None = None) -> None:
    command = enqueue("q", *bodies)
    if attributes is not None:
        command = c.Enqueue("q", command.count, command.sizes, command.payload, attributes=attributes)
    made.service.submit(command)
    link = made.service.submit(c.Subscribe("q"))
    rows = made.service.submit(c.Acquire("q", link, len(bodies))).rows
    made.service.submit(c.Release("q", link, rows, Cause.DEFERRED), c.Unsubscribe("q", link))


def ask(m: Manager, *numbers: int, mode: int = LOCK) -> tuple[int, Any, list[dict[str, Any]]]:
    body = {"sequence-numbers": Array("long", numbers), "receiver-settle-mode": UInt(mode)}
    status, condition, value = m.ask(RECEIVE, body)
    return status, condition, [] if value is None else value["messages"]


def tokens(messages: list[dict[str, Any]]) -> dict[str, Any]:
    return {"lock-tokens": Array("uuid", tuple(message["lock-token"] for message in messages))}


def settle(m: Manager, messages: list[dict[str, Any]], how: str) -> tuple[int, Any]:
    return m.ask(SETTLE, {**tokens(messages), "disposition-status": how})[:2]


def test_a_receiver_defers_by_its_link(m: Manager) -> None:
    """The vendor's SDKs send *modified* with undeliverable-here, with or without delivery-failed. Both count."""
    made = m.script.stage
    made.service.submit(enqueue("q", b"one", b"two"))
    m.script.receiver("q", 4, 2)
    ids = [m.script.expect(Transfer).delivery_id for _ in range(2)]
    for number, failed in zip(ids, (True, False), strict=True):
        state = Modified(delivery_failed=failed, undeliverable_here=True)
        m.script.send(Disposition(role=True, first=number, settled=False, state=state))
        answer = m.script.expect(Disposition)
        assert isinstance(answer.state, Modified), "the answer repeats the outcome"
    assert made.counts("q") == {"deferred": 2}
    assert made.messages("q") == [(0, 1), (1, 1)]


def test_a_lock_ends_by_its_time_and_the_message_is_deferred(m: Manager) -> None:
    made = m.script.stage
    deferred(made, b"one")
    _, _, messages = ask(m, 1)
    made.pass_time(59)
    until = made.service.wall_ms() + 60_000
    assert m.ask(RENEW, tokens(messages))[2]["expirations"].items == (until,)
    made.pass_time(59)
    assert made.counts("q") == {"acquired": 1}
    made.pass_time(2)
    assert made.counts("q") == {"deferred": 1}
    assert m.ask(RENEW, tokens(messages))[:2] == (410, LOCK_LOST)
    assert settle(m, messages, "completed") == (410, LOCK_LOST)
    _, _, again = ask(m, 1)
    assert again[0]["lock-token"] != messages[0]["lock-token"]
    assert settle(m, messages, "completed") == (410, LOCK_LOST), "a former lock settles nothing"
    assert settle(m, again, "completed") == (200, None)


def test_one_lock_token_among_several_that_is_lost_settles_nothing(m: Manager) -> None:
    deferred(m.script.stage, b"one", b"two")
    _, _, messages = ask(m, 1, 2)
    assert settle(m, messages[:1], "abandoned") == (200, None)
    assert settle(m, messages, "completed") == (410, LOCK_LOST)
    assert m.script.stage.counts("q") == {"acquired": 1, "deferred": 1}


def test_another_connection_settles_by_token(made: Stage, m: Manager) -> None:
    deferred(made, b"one")
    _, _, messages = ask(m, 1)
    assert settle(Manager(made, container_id="second"), messages, "completed") == (200, None)
    assert made.counts("q") == {"archived": 1}
    assert settle(m, messages, "completed") == (410, LOCK_LOST)


NEW_REQUESTS, NEW_RESPONSES = 12, 13


def attach_again(m: Manager) -> None:
    """Attach links to `$management` under other names; later requests use them."""
    m.script.sender("q/$management", NEW_REQUESTS, name="new requests", source=Source(address="you"))
    m.script.receiver("q/$management", NEW_RESPONSES, 100, name="new responses", target=Target(address="you"))
    m.requests, m.reply_to = NEW_REQUESTS, "you"


@pytest.mark.parametrize("closed_first", [True, False])
def test_another_receiver_of_the_connection_renews_and_settles(m: Manager, closed_first: bool) -> None:
    """The vendor's locks belong to the entity. A client whose receiver is closed continues with another one."""
    made = m.script.stage
    deferred(made, b"one", b"two")
    _, _, messages = ask(m, 1, 2)
    if closed_first:
        for handle in (2, 3):
            m.script.send(detach(handle))
            m.script.expect(Detach, handle=handle)
    attach_again(m)
    assert made.counts("q") == {"acquired": 2}
    made.pass_time(50)
    assert m.ask(RENEW, tokens(messages))[0] == 200
    made.pass_time(50)
    assert settle(m, messages[:1], "completed") == (200, None)
    assert settle(m, messages[1:], "abandoned") == (200, None)
    assert made.counts("q") == {"archived": 1, "deferred": 1}
    assert made.messages("q") == [(1, 2)]


def test_locks_of_all_links_of_a_connection_are_limited(tmp_path: Path) -> None:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,), clock=Clock(), amqp_max_unsettled=2) as made:
        made.declare("q", lockTimeout=60_000)
        m = Manager(made)
        deferred(made, b"one", b"two", b"three")
        ask(m, 1, 2)
        attach_again(m)
        assert ask(m, 3)[:2] == (403, "amqp:resource-limit-exceeded")


def test_the_end_of_the_connection_ends_the_locks(made: Stage, m: Manager) -> None:
    deferred(made, b"one", b"two")
    _, _, messages = ask(m, 1)
    m.script.drop()
    made.until(lambda: made.counts("q") == {"deferred": 2}, "the message is deferred again")
    assert made.messages("q") == [(0, 2), (1, 1)]
    later = Manager(made)
    assert settle(later, messages, "completed") == (410, LOCK_LOST)
    assert ask(later, 1)[0] == 200


def test_an_expired_message_is_not_found_and_ends(m: Manager) -> None:
    made = m.script.stage
    deferred(made, b"one", attributes=Attributes(expiry=np.array([made.service.wall_ms() + 5000])))
    made.pass_time(60)
    assert made.counts("q") == {"deferred": 1}
    assert ask(m, 1)[:2] == (404, NOT_FOUND)
    assert made.counts("q") == {"archived": 1}


def test_messages_that_are_received_and_deleted_have_no_token(m: Manager) -> None:
    deferred(m.script.stage, b"one", b"two")
    status, _, messages = ask(m, 2, 1, 2, mode=DELETE)
    assert (status, [set(message) for message in messages]) == (200, [{"message"}, {"message"}])
    assert [decode_message(message["message"]).data for message in messages] == [[b"two"], [b"one"]]
    m.script.stage.settle()
    assert m.script.stage.counts("q") == {"archived": 2}


def test_a_response_is_limited_but_one_message_always_fits(m: Manager) -> None:
    deferred(m.script.stage, b"a" * (1 << 20), b"b" * 100)
    status, condition, _ = ask(m, 1, 2)
    assert (status, condition) == (403, "amqp:resource-limit-exceeded")
    assert m.script.stage.counts("q") == {"deferred": 2}
    assert ask(m, 2)[0] == 200


def test_locks_that_have_ended_do_not_count_to_the_limit(tmp_path: Path) -> None:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,), clock=Clock(), amqp_max_unsettled=2) as made:
        made.declare("q", lockTimeout=60_000)
        m = Manager(made)
        deferred(made, b"one", b"two", b"three")
        _, _, messages = ask(m, 1, 2)
        assert ask(m, 3)[:2] == (403, "amqp:resource-limit-exceeded")
        assert settle(m, messages[:1], "completed") == (200, None)
        assert ask(m, 3)[0] == 200
        made.pass_time(61)
        assert ask(m, 2, 3)[0] == 200, "locks that have ended do not count"


def test_a_queue_that_is_deleted_and_declared_again_has_new_locks(m: Manager) -> None:
    made = m.script.stage
    deferred(made, b"old")
    _, _, old = ask(m, 1)
    made.delete("q")
    made.declare("q")
    deferred(made, b"new")
    assert settle(m, old, "completed") == (410, LOCK_LOST)
    _, _, new = ask(m, 1)
    assert decode_message(new[0]["message"]).data == [b"new"]
    assert settle(m, old, "completed") == (410, LOCK_LOST)
    assert settle(m, new, "completed") == (200, None)


def test_a_token_of_another_queue_is_lost(made: Stage, m: Manager) -> None:
    deferred(made, b"one")
    _, _, messages = ask(m, 1)
    token = messages[0]["lock-token"].bytes_le
    for stale in (token[:8] + bytes(8), bytes(7) + b"\7" + token[8:], token[:13] + b"\xff\xff\xff"):
        assert m.ask(RENEW, {"lock-tokens": Array("uuid", (UUID(bytes_le=stale),))})[:2] == (410, LOCK_LOST)
    assert made.counts("q") == {"acquired": 1}


def test_a_paused_queue_gives_none(m: Manager) -> None:
    deferred(m.script.stage, b"one")
    m.script.stage.service.submit(c.PauseQueue("q"))
    assert ask(m, 1)[0] == 400
    assert m.script.stage.counts("q") == {"deferred": 1}


@pytest.mark.parametrize("mode", [LOCK, DELETE])
def test_a_message_that_cannot_be_read_stays_deferred(tmp_path: Path, mode: int) -> None:
    with stage(tmp_path, fsync="never", listeners=(LISTENER,)) as first:
        first.declare("q")
        for body in (b"good", b"damaged-payload"):
            first.service.submit(enqueue("q", body))
        link = first.service.submit(c.Subscribe("q"))
        first.service.submit(c.Acquire("q", link, 2), c.Release("q", link, RowSet.range(0, 2), Cause.DEFERRED))
    (segment,) = (path for path in (tmp_path / "data").glob("**/*.seg") if b"damaged-payload" in path.read_bytes())
    segment.write_bytes(segment.read_bytes().replace(b"damaged-payload", b"demaged-payload"))
    with stage(tmp_path, fsync="never", listeners=(LISTENER,)) as made:
        m = Manager(made)
        assert ask(m, 1, 2, mode=mode)[0] in (400, 500)
        made.settle()
        assert made.counts("q") == {"deferred": 2}
        assert ask(m, 1, mode=mode)[0] == 200
