"""Both ends of our own library: windows, credit, deliveries and dispositions, with the wrap of every number."""

from __future__ import annotations

import doctest
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import penstock.broker_core.amqp
from penstock.broker_core.amqp import Connection, ConnectionSettings, LocalProtocolError, Role, events, serial
from penstock.broker_core.amqp.performatives import Accepted, Detach, Error, Released, Transfer
from penstock.broker_core.amqp.states import SessionState

from .values import STEADY, Pair
from .wire import Wire

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(penstock.broker_core.amqp.__file__).parents[3])}
numbers = st.one_of(st.sampled_from([0, 1, 2**31 - 1, 2**31, 2**32 - 1]), st.integers(0, 2**32 - 1))


@given(numbers, st.integers(0, 2**31 - 1))
@settings(STEADY)
def test_serial_numbers(start: int, steps: int) -> None:
    assert serial.difference(serial.add(start, steps), start) == steps
    assert serial.difference(start, serial.add(start, steps)) == -steps
    assert serial.difference(serial.add(start, 2**31), start) == -(2**31)


@given(st.lists(st.integers(0, 20), unique=True), st.sampled_from([0, 2**32 - 10]))
@settings(STEADY)
def test_ranges_name_exactly_the_ids(steps: list[int], start: int) -> None:
    ids = [serial.add(start, step) for step in sorted(steps)]
    named_ids = [serial.add(a, k) for a, b in serial.ranges(ids) for k in range(serial.difference(b, a) + 1)]
    assert named_ids == ids


@pytest.mark.parametrize("first", [0, 2**32 - 3])
@pytest.mark.parametrize("fast", [True, False])
def test_a_thousand_messages_across_the_wrap(first: int, fast: bool) -> None:
    pair = Pair(incoming_window=64)
    if not fast:
        pair.server = Connection(Role.SERVER, ConnectionSettings(container_id="server", incoming_window=64), fast=False)
    pair.opened()
    session = pair.session(first_outgoing_id=first)
    sender, receiver = pair.link(session=session, initial_delivery_count=first)
    assert receiver.delivery_count == first
    seen: list[bytes] = []
    tags = [b"%d" % number for number in range(1000)]
    while len(seen) < 1000:
        receiver.grant(100)
        pair.pump()
        before = len(sender.unsettled)
        sent = sender.send_many(tags[len(seen) + before :], [b"m" * 10] * 1000)
        _, server_events = pair.pump()
        deliveries = [d for event in server_events if isinstance(event, events.Delivered) for d in event.deliveries]
        assert [d.tag for d in deliveries] == [d.tag for d in sent]
        session[1].dispose(deliveries, Accepted())
        at_client, _ = pair.pump()
        settled = [d for event in at_client if isinstance(event, events.Disposed) for d in event.deliveries]
        assert [d.tag for d in settled] == [d.tag for d in sent]
        assert all(isinstance(d.remote_state, Accepted) for d in settled)
        seen += [d.tag for d in deliveries]
    assert seen == tags
    assert sender.delivery_count == receiver.delivery_count == serial.add(first, 1000)
    assert not sender.unsettled
    assert not receiver.unsettled
    assert not session[0].outgoing
    assert not session[1].incoming


@given(st.lists(st.sampled_from(["send", "many", "big", "grant", "drain", "accept", "pump", "settled", "abort"]), max_size=40))
@settings(STEADY, max_examples=120)
def test_conservation_over_random_histories(steps: list[str]) -> None:
    """Every sent delivery is settled, unsettled on both sides, or on its way. Silent ends agree about credit."""
    pair = Pair(client={"max_frame_size": 512}, server={"max_frame_size": 512, "incoming_window": 4}).opened()
    session = pair.session(first_outgoing_id=2**32 - 5)
    sender, receiver = pair.link(session=session, credit=3, initial_delivery_count=2**32 - 2)
    count, delivered, aborted = 0, [], 0
    for step in steps:
        if step in ("send", "big", "settled", "abort", "many") and sender.can_send:
            payload = b"p" * (2000 if step == "big" else 20)
            count += 1
            if step == "many":
                sender.send_many([b"%d" % count], [payload])
            else:
                delivery = sender.send(b"%d" % count, payload, settled=step == "settled", more=step == "abort")
                if step == "abort" and not session[0].blocked:
                    sender.abort(delivery)
                    aborted += 1
                elif step == "abort":
                    pair.pump()
                    sender.abort(delivery)
                    aborted += 1
        elif step == "grant":
            receiver.grant(3)
        elif step == "drain":
            receiver.grant(2, drain=True)
            pair.pump()
            sender.drained()
        elif step == "accept" and session[1].incoming:
            complete = [d for d in session[1].incoming.values() if d.payload]
            if complete:
                session[1].dispose(complete[:2], Accepted())
        _, server_events = pair.pump()
        assert not any(isinstance(event, events.Violated) for event in server_events)
        delivered += [d for event in server_events if isinstance(event, events.Delivered) for d in event.deliveries]
    pair.pump()
    assert len(delivered) + aborted == count
    assert [int(d.tag) for d in delivered] == sorted(int(d.tag) for d in delivered)
    assert sender.link_credit == receiver.link_credit >= 0
    assert sender.delivery_count == receiver.delivery_count
    assert set(sender.unsettled) == set(receiver.unsettled) == {d.tag for d in session[0].outgoing.values()}
    assert session[0].next_outgoing_id == session[1].next_incoming_id


def test_credit_taken_back_forgives_what_was_under_way() -> None:
    pair = Pair().opened()
    sender, receiver = pair.link(credit=5)
    receiver.grant(0)
    sender.send_many([b"1", b"2"], [b"a", b"b"])
    octets = pair.client.data_to_send()
    server_events = pair.server.receive_data(octets)
    assert [len(e.deliveries) for e in server_events if isinstance(e, events.Delivered)] in ([2], [1, 1])
    assert receiver.link_credit == 0
    pair.pump()
    with pytest.raises(LocalProtocolError, match="credit"):
        sender.send(b"3", b"c")


def test_a_disposition_of_everything_costs_what_is_unsettled() -> None:
    pair = Pair().opened()
    session = pair.session()
    sender, _ = pair.link(session=session, credit=3)
    sender.send_many([b"1", b"2", b"3"], [b""] * 3)
    pair.pump()
    from penstock.broker_core.amqp.performatives import RECEIVER, Disposition

    client_events = session[0].on_frame(Disposition(role=RECEIVER, first=0, last=2**31 - 1, settled=True, state=Accepted()), b"")
    assert [d.tag for d in client_events[0].deliveries] == [b"1", b"2", b"3"]


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda s, r, a, b: s.send(b"1", b"m"), "used again"),
        (lambda s, r, a, b: s.send(b"", b"m"), "tag"),
        (lambda s, r, a, b: s.send(b"x" * 33, b"m"), "tag"),
        (lambda s, r, a, b: s.send(b"2", b"m" * 101), "100"),
        (lambda s, r, a, b: s.send(b"2", b"m", resume=True), "unsettled map"),
        (lambda s, r, a, b: b.dispose([*b.incoming.values(), *a.outgoing.values()]), "direction"),
        (lambda s, r, a, b: r.grant(2**31), "credit"),
        (lambda s, r, a, b: s.attach(), "state"),
        (lambda s, r, a, b: a.begin(), "state"),
        (lambda s, r, a, b: a.connection.open(), "state"),
    ],
)
def test_what_the_caller_may_not_do_changes_nothing(call: Any, text: str) -> None:
    pair = Pair(server={"max_message_size": 100}).opened()
    session = pair.session()
    sender, receiver = pair.link(session=session, credit=5)
    sender.send(b"1", b"m")
    pair.pump()
    with pytest.raises(LocalProtocolError, match=text):
        call(sender, receiver, session[0], session[1])
    assert pair.client.data_to_send() == pair.server.data_to_send() == b""
    sender.send(b"next", b"m")
    _, server_events = pair.pump()
    assert isinstance(server_events[-1], events.Delivered)


def test_the_example_of_the_documentation() -> None:
    assert doctest.testmod(penstock.broker_core.amqp) == doctest.TestResults(failed=0, attempted=17)


def test_it_needs_nothing_but_the_standard_library() -> None:
    code = (
        "import sys, penstock.broker_core.amqp; print(*({m.split('.')[0] for m in sys.modules} - set(sys.stdlib_module_names)))"
    )
    completed = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True, env=ENVIRONMENT)
    assert set(completed.stdout.split()) <= {"__main__", "penstock"}


def test_a_delivery_is_settled_once() -> None:
    pair = Pair().opened()
    session = pair.session()
    sender, _ = pair.link(session=session, credit=5)
    sender.send(b"1", b"m")
    pair.pump()
    delivery = session[1].incoming[0]
    session[1].dispose([delivery], Accepted())
    with pytest.raises(LocalProtocolError, match="settled already"):
        session[1].dispose([delivery], Accepted())


def test_a_receiver_of_mode_second_does_not_settle_first() -> None:
    pair = Pair().opened()
    session = pair.session()
    sender, receiver = pair.link(session=session, credit=5, rcv_settle_mode=1)
    sender.send(b"1", b"m")
    alone = Transfer(handle=sender.handle, delivery_id=1, delivery_tag=b"2", message_format=0, rcv_settle_mode=0)
    session[0].send(alone, b"m")  # the receiver alone may settle this one
    pair.pump()
    first, second = session[1].incoming.values()
    with pytest.raises(LocalProtocolError, match="sender's to settle"):
        session[1].dispose([first, second], Accepted())
    assert receiver.unsettled.keys() == {b"1", b"2"}
    session[1].dispose([second], Accepted())
    session[1].dispose([first], Accepted(), settled=False)
    pair.pump()
    assert sender.unsettled.keys() == {b"1"}


def test_many_at_once_stops_where_one_needs_more_than_a_frame_or_a_new_tag() -> None:
    pair = Pair(server={"max_frame_size": 512, "max_message_size": 1000}).opened()
    sender, _ = pair.link(credit=50)
    assert [d.tag for d in sender.send_many([b"1", b"2", b"3"], [b"m", b"m" * 600, b"m"])] == [b"1"]
    assert [d.tag for d in sender.send_many([b"4", b"1", b"5"], [b"m"] * 3)] == [b"4"]
    assert sender.send_many([b"6"], [b"m" * 1001]) == []
    assert sender.link_credit == 48
    _, server_events = pair.pump()
    assert not any(isinstance(event, events.Violated) for event in server_events)


of_one_size = st.lists(
    st.tuples(st.binary(min_size=8, max_size=8), st.binary(max_size=300)), max_size=8, unique_by=lambda m: m[0]
)
of_any_size = st.lists(
    st.tuples(st.binary(min_size=1, max_size=32), st.binary(max_size=300)), max_size=8, unique_by=lambda m: m[0]
)


@given(st.one_of(of_one_size, of_any_size), st.one_of(numbers, st.sampled_from([254, 255, 256, 2**32 - 4])))
@settings(STEADY, max_examples=100)
def test_many_at_once_are_the_octets_of_one_by_one(messages: list[tuple[bytes, bytes]], first: int) -> None:
    out = []
    for many in (True, False):
        pair = Pair().opened()
        sender, _ = pair.link(session=pair.session(first_outgoing_id=first), credit=50)
        if many:
            assert len(sender.send_many(*zip(*messages, strict=True))) == len(messages) if messages else True
        else:
            for tag, payload in messages:
                sender.send(tag, payload)
        unsettled = sorted((tag, delivery.id) for tag, delivery in sender.unsettled.items())
        out.append((pair.client.data_to_send(), sender.link_credit, sender.delivery_count, unsettled, [*sender.session.outgoing]))
    assert out[0] == out[1]


def test_drained_says_nothing_unless_it_was_asked() -> None:
    pair = Pair().opened()
    sender, receiver = pair.link(credit=5)
    sender.drained()
    assert pair.client.data_to_send() == b""
    assert sender.link_credit == 5
    receiver.grant(5, drain=True)
    pair.pump()
    sender.send(b"1", b"half", more=True)
    sender.drained()  # not during a delivery
    assert sender.link_credit == 5
    sender.session.outbox.put(sender, Transfer(handle=sender.handle), b"rest")
    sender.drained()
    pair.pump()
    assert (sender.link_credit, receiver.link_credit, receiver.delivery_count) == (0, 0, 5)


def test_modes_and_limits_of_the_caller() -> None:
    pair = Pair(server={"channel_max": 1, "handle_max": 0}).opened()
    session = pair.session()
    sender, _ = pair.link(session=session, credit=5, snd_settle_mode=1)
    assert sender.send(b"1", b"m").settled
    with pytest.raises(LocalProtocolError, match="settle-mode"):
        sender.send(b"2", b"m", settled=False)
    with pytest.raises(LocalProtocolError, match="1 links"):
        session[0].sender("another").attach()
    pair.session()
    with pytest.raises(LocalProtocolError, match="2 sessions"):
        pair.client.begin()


def test_a_frame_that_the_peer_does_not_take_is_not_sent() -> None:
    pair = Pair(server={"max_frame_size": 512}).opened()
    session = pair.session()
    with pytest.raises(LocalProtocolError, match="frame-size-too-small"):
        session[0].sender("x").attach(unsettled={b"%032d" % number: Accepted() for number in range(50)})
    session[0].sender("x").attach(unsettled={b"1": Accepted()}, incomplete_unsettled=True)
    _, server_events = pair.pump()
    attach = server_events[0].attach  # type: ignore[union-attr]
    assert attach.incomplete_unsettled
    assert attach.unsettled == {b"1": Accepted()}


def test_deliveries_of_a_link_that_was_only_detached_stay_alive() -> None:
    pair = Pair().opened()
    session = pair.session()
    sender, receiver = pair.link(session=session, credit=5)
    sender.send(b"1", b"m")
    pair.pump()
    sender.detach(closed=False)
    pair.pump()
    receiver.detach(closed=False)
    pair.pump()
    session[1].dispose(list(session[1].incoming.values()), Released())
    at_client, _ = pair.pump()
    assert [d.tag for d in at_client[0].deliveries] == [b"1"]  # type: ignore[union-attr]
    assert not sender.unsettled


@pytest.mark.parametrize("closed", [False, True])
def test_what_is_under_way_when_we_detach_is_heard(closed: bool) -> None:
    """2.6.4: a link that is detached and not closed receives until its peer has also detached. Both continue when they attach
    again.
    """
    pair = Pair().opened()
    sender, receiver = pair.link()
    receiver.grant(2)
    pair.pump()
    sender.send(b"t", b"m")
    receiver.detach(closed=closed)
    pair.pump()
    assert list(receiver.unsettled) == ([] if closed else [b"t"])
    if not closed:
        sender.detach(closed=False)
        pair.pump()
        again = receiver.session.receiver(receiver.name)
        again.adopt(receiver)
        assert not receiver.unsettled
        receiver.session.dispose(list(again.unsettled.values()), Accepted())
        pair.pump()
        assert not sender.unsettled
        assert not again.unsettled


@pytest.mark.parametrize("error", [None, Error(condition="amqp:link:detach-forced")])
def test_deliveries_of_a_closed_or_failed_link_are_dead_to_the_session(error: Error | None) -> None:
    pair = Pair().opened()
    session = pair.session()
    sender, receiver = pair.link(session=session, credit=5)
    sender.send(b"1", b"m")
    pair.pump()
    receiver.detach(closed=error is None, error=error)
    pair.pump()
    assert not session[0].outgoing
    assert not session[1].incoming
    assert set(sender.unsettled) == set(receiver.unsettled) == {b"1"}


@pytest.mark.parametrize("who", ["we", "they", "plainly"])
def test_what_waits_for_the_window_goes_with_its_link(who: str) -> None:
    pair = Pair(client={"max_frame_size": 512}, server={"max_frame_size": 512, "incoming_window": 2}).opened()
    session = pair.session()
    sender, receiver = pair.link(session=session, credit=5)
    other_sender, _ = pair.link("other", session=session, credit=5)
    sender.send(b"1", b"m" * 5000)  # two frames leave, the rest waits
    assert session[0].blocked
    assert not other_sender.can_send
    with pytest.raises(LocalProtocolError, match="window"):
        other_sender.send(b"2", b"m")
    if who == "they":
        receiver.detach()
        pair.client.receive_data(pair.server.data_to_send())
    else:
        sender.detach(closed=who == "we")
    assert not session[0].blocked
    pair.pump()
    other_sender.send(b"2", b"m")
    _, server_events = pair.pump()
    assert [d.tag for event in server_events if isinstance(event, events.Delivered) for d in event.deliveries] == [b"2"]
    assert not any(isinstance(event, events.Violated) for event in server_events)


def test_a_flow_behind_a_detach_is_the_sessions_alone() -> None:
    """The link has ended, the session continues, and its windows count: go-amqp sends it. A handle never attached ends the
    session.
    """
    w = Wire().opened()
    session = w.session()
    w.sender(credit=1)
    w.peer(Detach(handle=0, closed=True))
    (event,) = w.flow(handle=0, link_credit=10, delivery_count=0, incoming_window=7)
    assert isinstance(event, events.Flowed)
    assert event.link is None
    assert session.remote_incoming_window == 7
    assert session.state is SessionState.MAPPED
    (event,) = w.flow(handle=1, link_credit=10, delivery_count=0)
    assert isinstance(event, events.Violated)


def test_handles_and_channels_are_the_lowest_free() -> None:
    pair = Pair().opened()
    first, second = pair.session(), pair.session()
    assert (first[0].local_channel, second[0].local_channel) == (0, 1)
    links = [pair.link(f"l{n}", session=first)[0] for n in range(3)]
    assert [link.handle for link in links] == [0, 1, 2]
    links[1].detach()
    _, server_events = pair.pump()
    server_events[0].link.detach()  # type: ignore[union-attr]
    pair.pump()
    assert pair.link("again", session=first)[0].handle == 1
    first[0].end()
    _, server_events = pair.pump()
    server_events[0].session.end()  # type: ignore[union-attr]
    pair.pump()
    assert pair.session()[0].local_channel == 0


def test_pipelined_credit_counts_from_the_initial_delivery_count() -> None:
    pair = Pair().opened()
    session = pair.session()
    receiver = session[0].receiver("in")
    receiver.attach()
    receiver.grant(2)
    _, server_events = pair.pump()
    sender = server_events[0].link  # type: ignore[union-attr]
    assert sender.link_credit == 2
    sender.attach(initial_delivery_count=100)
    pair.pump()
    assert sender.send_many([b"1", b"2", b"3"], [b""] * 3)[-1].tag == b"2"
    at_client, _ = pair.pump()
    assert [d.tag for e in at_client if isinstance(e, events.Delivered) for d in e.deliveries] == [b"1", b"2"]


def test_terminal_state_of_the_sender_does_not_change() -> None:
    pair = Pair().opened()
    session = pair.session()
    sender, receiver = pair.link(session=session, credit=5, rcv_settle_mode=1)
    delivery = sender.send(b"1", b"m", state=Released())
    pair.pump()
    session[0].dispose([delivery], Accepted(), settled=False)
    pair.pump()
    assert receiver.unsettled[b"1"].remote_state == Released()


@pytest.mark.parametrize("role", ["client", "server"])
def test_idle_time_out(role: str) -> None:
    pair = Pair(client={"idle_time_out": 4000}, server={"idle_time_out": 2000}).opened()
    now = 100.0
    assert pair.client.tick(now) == pair.server.tick(now) == []
    assert pair.client.next_tick(now) == now + 1.0  # half of the server's time-out
    assert pair.server.next_tick(now) == now + 2.0
    assert pair.client.tick(now + 0.9) == []
    assert pair.client.data_to_send() == b""
    pair.client.tick(now + 1.0)
    assert pair.client.data_to_send() == bytes.fromhex("0000000802000000")
    silent, patience = (pair.client, 8.0) if role == "client" else (pair.server, 4.0)
    silent.receive_data(bytes.fromhex("00000008020000"), now + 1)  # half a frame does not count
    assert silent.tick(now + patience - 0.01) == []
    assert silent.tick(now + patience) == [events.TimedOut()]
    assert b"idle time-out" in silent.data_to_send()


def test_an_idle_time_out_that_is_too_short_is_refused() -> None:
    pair = Pair(client={"idle_time_out": 10}, server={"min_remote_idle_time_out": 1000})
    pair.pump()
    pair.client.open()
    at_client, at_server = pair.pump()
    assert isinstance(at_server[0], events.Violated)
    assert isinstance(at_client[-1], events.Closed)


def test_the_end_of_the_transport() -> None:
    pair = Pair().opened()
    assert pair.server.receive_eof() == [events.Lost()]
    assert pair.server.finished
    assert pair.server.receive_eof() == []
    with pytest.raises(LocalProtocolError):
        pair.server.close()


@pytest.mark.parametrize("in_blocks", [False, True])
def test_a_peer_that_is_known_to_miscount_may_send_some_beyond_its_credit(in_blocks: bool) -> None:
    pair = Pair().opened()
    sender, receiver = pair.link(credit=10)
    receiver.in_blocks = in_blocks
    pair.server.credit_overrun = 5
    sender.link_credit = 16
    sender.send_many([b"%d" % number for number in range(15)], [b"x"] * 15)
    pair.pump()
    assert receiver.delivery_count == 15
    assert receiver.state.value == "attached"
    sender.send_many([b"15"], [b"x"])
    pair.pump()
    assert receiver.delivery_count == 15
    assert receiver.state.value != "attached"
