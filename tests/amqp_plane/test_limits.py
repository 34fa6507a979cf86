"""W5, W6: each limit of the AMQP plane: the answer to a client that exceeds it, and another client that is not affected."""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp.frames import SASL_ID, protocol_header
from penstock.broker_core.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Close,
    Detach,
    Disposition,
    End,
    Error,
    Flow,
    Open,
    Rejected,
    Source,
    Target,
)
from penstock.broker_core.amqp_plane.connections.unfinished_messages import OF_ONE_USER
from penstock.broker_core.amqp_plane.links.attach import MAX_NAME
from penstock.broker_core.amqp_plane.plane import DOOMED, FIRST_FRAME_BYTES, UNFINISHED_MESSAGES
from penstock.broker_core.engine.model.policies import Policies, Policy
from penstock.broker_core.security.audit import AuditFilter

from ..service.helpers import enqueue
from .frames import begin, detach, flow, message, more, receives, says, sends, symbol, transfer
from .harness import Script, Stage, stage
from .logins import Site, log_in, user
from .test_fuzz_plane import Bystander

KIB = 1024
FRAME = 4 * KIB

Limited = Callable[..., contextlib.AbstractContextManager[Stage]]


@pytest.fixture
def limited(tmp_path: Path) -> Limited:
    """Yield a stage with these settings, and a bystander that is served during the block and after it."""

    @contextlib.contextmanager
    def make(**settings: Any) -> Iterator[Stage]:
        with stage(tmp_path, fsync="never", **settings) as s:
            s.declare("q", "bystander")
            bystander = Bystander(s.plane.urls[0])
            bystander.start()
            bystander.served(0)
            before = bystander.rounds
            try:
                yield s
                bystander.served(before)
            finally:
                bystander.stop()
            assert bystander.failure is None

    return make


def expect_error(a: Script, kind: type[Any], condition: str, **fields: Any) -> Any:
    """Expect a frame with this error."""
    answer = a.expect(kind, **fields)
    assert answer.error is not None
    assert answer.error.condition == condition
    return answer


def closed(a: Script, condition: str, *, answer: bool = True) -> None:
    """Without `answer`, the begin of the next frame is unknown, and the broker does not wait for it."""
    expect_error(a, Close, condition)
    if answer:
        a.send(Close())
    a.expect_end()


# ---- frames and messages


def test_a_frame_is_as_large_as_our_open_says_and_no_larger(limited: Limited) -> None:
    with limited(amqp_max_frame_bytes=FRAME) as s:
        a = s.script("A").usual()
        assert a.stage.plane.settings.amqp_max_frame_bytes == FRAME
        a.sender()
        body = transfer(0, message(b"x" * (FRAME - 200)))
        a.send(body)
        a.expect(Disposition, state=Accepted())
        a.say("the head of a frame of one octet more", struct.pack(">IBBH", FRAME + 1, 2, 0, 0))
        closed(a, "amqp:connection:framing-error", answer=False)


def test_an_open_is_smaller(limited: Limited) -> None:
    with limited() as s:
        a = s.script("A", open=False)
        a.say("header AMQP 0.1.0.0", protocol_header(0))
        a.hear_header()
        a.say("the head of an open", struct.pack(">IBBH", FIRST_FRAME_BYTES + 1, 2, 0, 0))
        a.expect(Open)
        closed(a, "amqp:connection:framing-error", answer=False)


def test_a_frame_of_the_login_is_smaller_still(limited: Limited) -> None:
    with limited() as s:
        a = s.script("A", open=False)
        a.say("header SASL", protocol_header(SASL_ID))
        a.hear_header()
        a.say("the head of a SASL frame", struct.pack(">IBBH", 513, 2, 1, 0))
        assert a._fill(16), "the mechanisms"
        assert not a._fill(1 << 20), "no reason can be sent: SASL has no close"


@pytest.mark.parametrize("queue", ["q", None])
def test_a_message_is_as_large_as_our_attach_says_and_no_larger(limited: Limited, queue: str | None) -> None:
    """In one frame, in a frame that comes with others, and in several frames; also if the message names the queue."""
    most = 8 * KIB
    properties = {"properties": _to("q")}
    with limited(max_message_bytes=most) as s:
        a = s.script("A").usual()
        s.note("whole")
        assert a.sender(queue).max_message_size == most
        fits = message(b"x" * (most - 100), **properties)
        assert most - 100 < len(fits) <= most
        a.send(transfer(0, fits))
        a.expect(Disposition, state=Accepted())
        a.send(transfer(1, message(b"small", **properties)), transfer(2, fits + bytes(200)))
        a.expect(Disposition, first=1, state=Accepted())
        expect_error(a, Detach, "amqp:link:message-size-exceeded")
        a.send(detach())
        s.note("in parts")
        a.sender(queue)
        a.send(transfer(3, fits[: most // 2], more=True), more(fits[: most // 2 + 1], more=True))
        expect_error(a, Detach, "amqp:link:message-size-exceeded")
        a.send(detach())
        a.sender(queue)
        a.send(transfer(4, fits))
        a.expect(Disposition, state=Accepted())
        assert s.counts("q") == {"available": 3}


def _to(queue: str) -> Any:
    from penstock.broker_core.amqp.messages import Properties

    return Properties(to=queue)


def test_messages_that_are_not_complete_are_bounded_over_all_links_of_a_connection(limited: Limited) -> None:
    most = 4 * KIB
    with limited(max_message_bytes=most) as s:
        a = s.script("A")
        a.begin(0)
        a.begin(1)
        half = message(b"x" * (most - 200))[: most - 300]
        for handle in range(UNFINISHED_MESSAGES):
            a.sender(handle=handle, name=f"link {handle}")
            a.send(transfer(handle, half, handle=handle, more=True))
        a.send(sends(name="beyond"), channel=1)
        a.expect(Attach, 1)
        a._frame()  # its credit
        a.send(transfer(0, half, more=True), channel=1)
        a.send(more(half, more=False), channel=1)
        expect_error(a, Detach, "amqp:resource-limit-exceeded", channel=1)
        s.note("the earlier deliveries end, and make room")
        for handle in range(UNFINISHED_MESSAGES):
            whole = message(b"x" * (most - 200))
            a.send(more(whole[len(half) :], handle=handle))
            a.expect(Disposition, state=Accepted())
        for number in range(10):  # any end of a delivery makes room
            a.send(transfer(10 + 2 * number, half, more=True), more(b"", aborted=True))
            a.send(transfer(11 + 2 * number, half, handle=1, more=True), detach(1))
            a.expect(Detach, handle=1)
            a.sender(handle=1, name="link 1")
        a.send(End(), channel=1)
        a.expect(End, 1)
        for _ in range(3):
            a.begin(1)
            a.send(sends(name="beyond"), channel=1)
            a.expect(Attach, 1)
            a._frame()
            a.send(transfer(0, half, more=True), End(), channel=1)
            a.expect(End, 1)
        assert s.counts("q") == {"available": UNFINISHED_MESSAGES}
        [wire] = [wire for wire in s.plane._accepted if wire.peer is not None and wire.peer.container == "client"]
        assert wire.peer is not None
        assert wire.peer.connection.unfinished_size == 0


def test_messages_that_are_not_complete_are_bounded_over_all_connections(limited: Limited) -> None:
    """For one user, and for all. Messages that are completed, aborted or lost with their connection make room."""
    most = 4 * KIB
    with limited(max_message_bytes=most) as s:
        half = message(b"x" * (most - 200))[: most - 300]

        def holds(name: str) -> Script:
            a = s.script(name, container_id=name)
            a.begin(0)
            a.sender()
            a.send(transfer(0, half, more=True))
            return a

        before = [holds(f"holds {number}") for number in range(OF_ONE_USER)]
        beyond = holds("beyond")
        answer = expect_error(beyond, Detach, "amqp:resource-limit-exceeded")
        assert "all connections together" in answer.error.description
        before.pop().drop()
        s.until(
            lambda: s.plane.unfinished.octets == len(half) * (OF_ONE_USER - 1), "the octets of a lost connection are forgotten"
        )
        last = holds("now there is room")
        whole = message(b"x" * (most - 200))
        for a in [*before, last]:
            a.send(more(whole[len(half) :]))
            a.expect(Disposition, state=Accepted())
        assert s.plane.unfinished.octets == 0
        assert s.counts("q") == {"available": OF_ONE_USER}


def test_a_message_that_is_never_completed_ends_its_connection(limited: Limited) -> None:
    """Others need the room. A client that completes a message now and then continues."""
    with limited() as s:
        clock = [0.0]
        s.plane.unfinished._now = lambda: clock[0]
        half, whole = message(b"x" * 3000)[:2000], message(b"x" * 3000)
        a, b = s.script("A", container_id="a"), s.script("B", container_id="b")
        for script in (a, b):
            script.begin(0)
            script.sender()
            script.send(transfer(0, half, more=True))
        s.until(lambda: s.plane.unfinished.octets == 2 * len(half), "both are half sent")
        clock[0] = 50.0
        b.send(more(whole[len(half) :]))
        b.expect(Disposition, state=Accepted())
        b.send(transfer(1, half, more=True))
        s.until(lambda: s.plane.unfinished.octets == 2 * len(half), "the next one is as well")
        clock[0] = 100.0
        closed(a, "amqp:resource-limit-exceeded")
        b.send(more(whole[len(half) :]))
        b.expect(Disposition, state=Accepted())
        s.until(lambda: s.plane.unfinished.octets == 0, "nothing is left")


def test_the_name_of_a_link_has_a_limit(limited: Limited) -> None:
    with limited() as s:
        a = s.script("A")
        a.begin(0)
        a.send(sends("q", name="n" * MAX_NAME))
        a.expect(Attach)
        a._frame()  # its credit
        a.send(sends("q", 1, name="n" * (MAX_NAME + 1)))
        closed(a, "amqp:resource-limit-exceeded")


# ---- connections


def doomed(s: Stage, name: str) -> None:
    b = s.script(name, open=False)
    answer = b.open(container_id=name)
    assert answer.properties is not None
    assert answer.properties[symbol("amqp:connection-establishment-failed")] is True
    closed(b, "amqp:resource-limit-exceeded")


def test_connections_beyond_the_limit_are_told_so_until_not_even_that_is_affordable(limited: Limited) -> None:
    with limited(amqp_max_connections=4) as s:
        friends = [s.script(f"friend {number}", container_id=f"{number}") for number in range(3)]
        doomed(s, "one more")
        silent = [s.script(f"silent {number}", open=False) for number in range(DOOMED)]
        s.until(lambda: len(s.plane._accepted) == 4 + DOOMED, "all of them are accepted")
        beyond = s.script("beyond", open=False)
        assert not beyond._fill(1), "the end without a frame"
        for peer in silent:
            peer.drop(quietly=True)
        friends.pop().drop()
        s.until(lambda: len(s.plane._accepted) == 3, "they are gone")
        s.script("again", container_id="again").usual().sender()


def test_connections_of_one_user_leave_room_for_others(limited: Limited, tmp_path: Path) -> None:
    site = Site(tmp_path, {"alice": user(), "bob": user()}, {n: {"*": "send,receive"} for n in ("alice", "bob", "anonymous")})
    with limited(amqp_max_connections_per_user=2, access=site.access) as s:
        held = [log_in(s, "alice", container_id=f"{number}") for number in range(2)]
        a = log_in(s, "alice", container_id="3")
        closed(a, "amqp:resource-limit-exceeded")
        bob = log_in(s, "bob").usual()
        bob.sender()
        held.pop().drop()
        s.until(lambda: s.plane.containers.users["alice"] == 1, "it is gone")
        log_in(s, "alice").usual().sender()


# ---- sessions and links


def test_sessions_are_as_many_as_channel_max_says(limited: Limited) -> None:
    with limited(amqp_max_sessions=3) as s:
        a = s.script("A", open=False)
        assert a.open().channel_max == 2
        for channel in range(3):
            a.begin(channel)
        a.send(End(), channel=1)
        a.expect(End, 1)
        a.begin(1)
        a.send(begin(), channel=3)
        closed(a, "amqp:connection:framing-error")


def test_handles_are_as_many_as_handle_max_says(limited: Limited) -> None:
    with limited(amqp_max_links=3) as s:
        a = s.script("A")
        a.send(begin())
        assert a.expect(Begin).handle_max == 2
        for handle in range(3):
            a.sender(handle=handle, name=f"{handle}")
        a.send(sends(handle=3, name="one more"))
        closed(a, "amqp:connection:framing-error")


def test_links_are_counted_over_all_sessions(limited: Limited) -> None:
    with limited(amqp_max_links=3) as s:
        a = s.script("A").usual()
        a.begin(1)
        for handle in range(3):
            a.sender(handle=handle, name=f"{handle}")
        a.send(sends(name="one more"), channel=1)
        a.expect(Attach, 1, target=None)
        expect_error(a, Detach, "amqp:resource-limit-exceeded", channel=1)
        a.send(detach(), channel=1)
        a.send(detach(2))
        a.expect(Detach, 0, handle=2)
        a.send(sends(name="in its place"), channel=1)
        a.expect(Attach, 1)


def test_nodes_of_one_user_leave_room_for_others(limited: Limited, tmp_path: Path) -> None:
    """E2: dynamic nodes and subscriptions, over all connections, with and without links."""
    names = ("alice", "bob", "anonymous")
    site = Site(tmp_path, {"alice": user(), "bob": user()}, {n: {"*": "send,receive"} for n in names})
    with limited(amqp_max_nodes_per_user=3, access=site.access) as s:
        s.exchange("news")
        a, b = (log_in(s, "alice", container_id=f"{number}").usual() for number in range(2))
        topic = Target(dynamic=True, capabilities=(symbol("temporary-topic"),))
        a.send(sends(handle=0, name="a queue", target=Target(dynamic=True)), sends(handle=1, name="a topic", target=topic))
        for _ in range(2):
            a.expect(Attach)
            a.expect(Flow)
        b.receiver("news", credit=1, name="a subscription")
        for number, attach in enumerate(
            (
                sends(handle=1, name="one more", target=Target(dynamic=True)),
                sends(handle=2, name="or a topic", target=topic),
                receives(handle=3, name="or a reply queue", source=Source(dynamic=True)),
                receives("news", 4, name="or a subscription"),
            ),
            1,
        ):
            b.send(attach)
            b.expect(Attach)
            expect_error(b, Detach, "amqp:resource-limit-exceeded")
            b.send(detach(number))
        log_in(s, "bob").usual().receiver("news", credit=1, name="his own")
        a.send(detach(0))
        a.expect(Detach)
        b.receiver("news", 5, credit=1, name="room for one")


def test_what_a_users_first_uses_make_counts_among_his_nodes(limited: Limited) -> None:
    """E2 E4: until it is deleted, by any user."""
    with limited(amqp_max_nodes_per_user=2) as s:
        s.service.state.policies = Policies([Policy("jobs.*", create=True)])
        a = s.script("A").usual()
        for handle, name in enumerate(("jobs.a", "jobs.b", "jobs.b")):
            a.sender(name, handle=handle, name=f"{handle}")
        a.send(sends("jobs.c", handle=3, name="one more"))
        a.expect(Attach)
        expect_error(a, Detach, "amqp:resource-limit-exceeded")
        a.send(detach(3))
        s.delete("jobs.b")
        for _ in range(2):
            a.expect(Detach)
        a.sender("jobs.c", handle=4, name="in its place")
        made = [(entry["door"], entry["action"], entry["object"]) for entry in s.service.audit.entries(AuditFilter(), 10)]
        assert made == [("amqp", "queue.declare", f"jobs.{name}") for name in "cba"]


def test_links_that_were_refused_and_are_not_detached_are_bounded_too(limited: Limited) -> None:
    with limited(amqp_max_links=4, amqp_max_sessions=4) as s:
        a = s.script("A")
        sent = 0
        for channel in range(4):
            a.begin(channel)
            for handle in range(4):
                a.send(sends("nowhere", handle=handle, name=f"{channel} {handle}"), channel=channel)
                sent += 1
                frame = a._frame()
                assert frame is not None
                if isinstance(frame[1], Close):
                    assert frame[1].error is not None
                    assert frame[1].error.condition == "amqp:resource-limit-exceeded"
                    assert sent == 9
                    return
                expect_error(a, Detach, "amqp:not-found", channel=channel)
        raise AssertionError("no limit was applied")


# ---- unsettled deliveries


def test_unsettled_deliveries_of_a_link_and_of_a_connection(limited: Limited) -> None:
    with limited(amqp_max_unsettled=3, amqp_max_unsettled_per_connection=5) as s:
        s.service.submit(enqueue("q", *[b"m%d" % number for number in range(20)]))
        a = s.script("A").usual()
        a.begin(1)
        a.receiver(credit=1000)
        a.expect_messages(b"m0", b"m1", b"m2")
        a.nothing()
        a.send(receives(name="other"), flow(0, 1000), channel=1)
        a.expect(Attach, 1)
        a.expect_messages(b"m3", b"m4")
        a.nothing()
        s.note("the limit does not hold another connection back")
        b = s.script("B", container_id="B").usual()
        b.receiver(credit=2)
        b.expect_messages(b"m5", b"m6")
        s.note("an outcome makes room, settled or not")
        a.send(says(Accepted(), 0, 1))
        a.expect_messages(b"m7", b"m8")
        a.nothing()


def test_unsettled_deliveries_of_a_session(limited: Limited) -> None:
    """C5."""
    with limited(amqp_max_unsettled=3, amqp_max_unsettled_per_session=4) as s:
        s.service.submit(enqueue("q", *[b"m%d" % number for number in range(20)]))
        a = s.script("A").usual()
        a.begin(1)
        a.receiver(credit=1000)
        a.expect_messages(b"m0", b"m1", b"m2")
        a.receiver(handle=1, name="another", credit=1000)
        a.expect_messages(b"m3")
        a.nothing()
        s.note("the limit does not hold another session of the connection back")
        a.send(receives(name="other"), flow(0, 2), channel=1)
        a.expect(Attach, 1)
        a.expect_messages(b"m4", b"m5")
        s.note("an outcome makes room only in its session")
        a.send(says(Accepted(), 0))
        a.expect_messages(b"m6")
        a.nothing()


def test_of_a_rejection_so_much_is_written_as_is_kept(limited: Limited) -> None:
    with limited() as s:
        a = s.script().usual()
        s.service.submit(enqueue("q", b"one"))
        a.receiver(credit=1)
        a.expect_message()
        before = s.service.journal.end
        a.send(says(Rejected(error=Error(condition="com.example:bad", description="no! " * 5_000)), 0))
        s.until(lambda: s.counts("q") == {"archived": 1}, "it is rejected")
        assert s.service.journal.end - before < 4 * KIB


def test_a_sender_has_as_many_under_way_as_its_credit(limited: Limited) -> None:
    with limited(amqp_credit=10) as s:
        a = s.script("A").usual()
        a.send(sends())
        a.expect(Attach)
        granted = a._frame()
        assert granted is not None
        assert granted[1].link_credit == 10  # type: ignore[attr-defined]
        a.send(*[transfer(number) for number in range(11)])
        while not isinstance(frame := a._frame(), tuple) or not isinstance(frame[1], Detach):
            assert frame is not None, "the connection stays open"
        assert frame[1].error is not None
        assert frame[1].error.condition == "amqp:link:transfer-limit-exceeded"
        s.until(lambda: s.counts("q") == {"available": 10}, "messages within its credit are stored")
        a.send(detach())
        a.sender()
