"""Part 4 in the library, both roles: a controller and a coordinator over a wire of memory."""

from __future__ import annotations

from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp import (
    Accepted,
    Connection,
    ConnectionSettings,
    Coordinator,
    Declare,
    Declared,
    Discharge,
    FieldError,
    Message,
    Role,
    Source,
    Target,
    TransactionalState,
    events,
    serial,
)
from penstock.broker_core.amqp.deliveries import LostDeliveries
from penstock.broker_core.amqp.errors import DecodeError, EncodeError
from penstock.broker_core.amqp.performatives import Transfer
from penstock.broker_core.amqp.transactions import LOCAL_TRANSACTIONS, MULTI_TXNS_PER_SSN, request, request_of
from penstock.broker_core.amqp.types import Described, Symbol

from .values import STEADY, calls

ID = b"\x00" * 31 + b"7"


class Ends:
    """A controller with its control link and another link, and their other ends."""

    def __init__(self) -> None:
        self.client = Connection(Role.CLIENT, ConnectionSettings(container_id="c"))
        self.server = Connection(Role.SERVER, ConnectionSettings(container_id="s"))
        self.turn()
        self.client.open()
        self.server.open()
        self.turn()
        session = self.client.begin()
        self.control, self.work = session.sender("txn"), session.sender("work")
        self.control.attach(source=Source(), target=Coordinator(capabilities=(LOCAL_TRANSACTIONS,)))
        self.work.attach(source=Source(), target=Target(address="q"))
        for event in self.turn()[0]:
            if isinstance(event, events.Begun):
                event.session.begin()
            if isinstance(event, events.Attached):
                target = event.attach.target
                if isinstance(target, Coordinator):
                    assert target.capabilities == (LOCAL_TRANSACTIONS,)
                    target = Coordinator(capabilities=(LOCAL_TRANSACTIONS, MULTI_TXNS_PER_SSN))
                event.link.attach(source=event.attach.source, target=target)
                event.link.grant(1000)  # type: ignore[attr-defined]
        self.turn()

    def turn(self) -> tuple[list[Any], list[Any]]:
        """Move the octets to the server, then to the client."""
        server_events = self.server.receive_data(self.client.data_to_send())
        return server_events, self.client.receive_data(self.server.data_to_send())


def test_a_transaction_from_declare_to_discharge() -> None:
    ends = Ends()
    assert ends.control.target == Coordinator(capabilities=(LOCAL_TRANSACTIONS, MULTI_TXNS_PER_SSN))
    ends.control.send(b"0", request(Declare()))
    [declared] = ends.turn()[0]
    assert request_of(declared.deliveries[0].payload) == Declare()
    declared.link.session.dispose(declared.deliveries, Declared(txn_id=ID))
    [answer] = ends.turn()[1]
    assert answer.state == Declared(txn_id=ID)
    ends.work.send(b"1", Message(data=[b"m"]).encode(), state=TransactionalState(txn_id=ID))
    [posted] = ends.turn()[0]
    assert posted.deliveries[0].remote_state == TransactionalState(txn_id=ID)
    posted.link.session.dispose(posted.deliveries, TransactionalState(txn_id=ID, outcome=Accepted()))
    [provisional] = ends.turn()[1]
    assert provisional.state.outcome == Accepted()
    ends.control.send(b"2", request(Discharge(txn_id=ID, fail=True)))
    [discharged] = ends.turn()[0]
    assert request_of(discharged.deliveries[0].payload) == Discharge(txn_id=ID, fail=True)


@pytest.mark.parametrize(
    "payload",
    [
        Message(data=[b"x"]).encode(),
        Message(value="declare", has_value=True).encode(),
        Message(value=Accepted(), has_value=True).encode(),  # type: ignore[arg-type]
        b"",
    ],
)
def test_what_is_neither_declare_nor_discharge_is_refused(payload: bytes) -> None:
    with pytest.raises(DecodeError):
        request_of(payload)


def test_a_discharge_names_its_transaction() -> None:
    nameless = Message(value=Described(Symbol("amqp:discharge:list"), []), has_value=True)
    with pytest.raises(FieldError, match="txn-id"):
        request_of(nameless.encode())


def test_a_transaction_id_has_up_to_32_octets() -> None:
    with pytest.raises(EncodeError):
        TransactionalState(txn_id=b"x" * 33).encode()


def test_the_transfers_of_a_delivery_are_of_one_transaction() -> None:
    """4.4.1: all frames of a delivery belong to one transaction. A frame without a state belongs to the same."""
    for second, good in ((TransactionalState(txn_id=ID), True), (None, True), (TransactionalState(txn_id=b"other"), False)):
        ends = Ends()
        ends.work.send(b"1", b"\x00\x53", state=TransactionalState(txn_id=ID), more=True)
        [server_end] = [link for s in ends.server.sessions.values() for link in s.links.values() if link.name == "work"]
        ends.turn()
        assert server_end.unfinished.tag == b"1"  # type: ignore[attr-defined]
        assert server_end.unfinished.remote_state == TransactionalState(txn_id=ID)  # type: ignore[attr-defined]
        ends.work.session.outbox.put(ends.work, Transfer(handle=ends.work._handle(), state=second), b"\x75\xa0\x01m")
        [event] = ends.turn()[0]
        assert isinstance(event, events.Delivered) == good
        assert isinstance(event, events.Violated) != good


def test_lost_deliveries_are_told_once_and_never_forgotten() -> None:
    lost = LostDeliveries()
    top = 0xFFFFFFFF
    lost.add([top - 1, top, 0, 1, 5, 6, 7])
    assert not lost.take([(2, 4), (8, 100)])
    assert lost.take([(top, 0)])
    assert not lost.take([(top, 0)])
    assert lost.take([(2, 6)])
    lost_numbers = [number for number in (top - 1, top, 0, 1, 5, 6, 7) if lost.take([(number, number)])]
    assert lost_numbers == [top - 1, 1, 7]
    lost.add(range(0, 4 * LostDeliveries.RANGES, 2))
    assert all(lost.take([(number, number)]) for number in range(0, 4 * LostDeliveries.RANGES, 2)), "too many"


@given(
    st.lists(st.tuples(st.booleans(), st.lists(st.integers(0, 40), unique=True, min_size=1, max_size=8)), max_size=20),
    st.sampled_from([0, 2**31 - 20, 2**32 - 20]),
)
@settings(STEADY)
def test_lost_deliveries_are_those_that_were_added_and_not_named(steps: list[tuple[bool, list[int]]], start: int) -> None:
    lost, known = LostDeliveries(), set[int]()
    for adds, numbers in steps:
        if adds:
            lost.add([serial.add(start, number) for number in numbers])
            known.update(numbers)
        else:
            pairs = [(min(some), max(some)) for some in zip(numbers[::2], numbers[1::2], strict=False)]
            named = {number for low, high in pairs for number in range(low, high + 1)}
            assert lost.take([(serial.add(start, low), serial.add(start, high)) for low, high in pairs]) == bool(known & named)
            known -= named
        assert bool(lost) == bool(known)
    assert [number for number in range(41) if lost.take([(serial.add(start, number),) * 2])] == sorted(known)


def test_a_range_costs_no_more_where_much_was_lost() -> None:
    few, many = LostDeliveries(), LostDeliveries()
    few.add(range(0, 4, 2))
    many.add(range(0, 2 * LostDeliveries.RANGES, 2))
    for first, last in ((5001, 5001), (1, 1), (9, 5001), (7, 7)):
        cost, least = (calls(partial(lost.take, [(first, last)] * 20)) for lost in (many, few))
        assert cost <= least + 20


@pytest.mark.parametrize("broken", [False, True])
def test_all_that_names_an_open_transaction_is_counted_before_anything_comes_of_it(broken: bool) -> None:
    ends = Ends()
    ends.server.coordinated.open(ID)
    if broken:  # a session error: following input is discarded
        ends.work.session.send(Transfer(handle=77, delivery_id=100, delivery_tag=b"x"))
    for number in range(5):
        ends.work.send(b"%d" % number, b"", state=TransactionalState(txn_id=ID if number else b"other"))
    ends.work.send(b"6", b"some", state=TransactionalState(txn_id=ID), more=True)
    server_events = ends.turn()[0]
    assert sum(event.count for event in server_events if isinstance(event, events.Named)) == 5
    assert sum(len(event.deliveries) for event in server_events if isinstance(event, events.Delivered)) == (0 if broken else 5)
