"""A receiving link in blocks: the same messages as single deliveries, settled by ranges of their ids."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker_core.amqp import (
    Accepted,
    Connection,
    ConnectionSettings,
    LocalProtocolError,
    Modified,
    Role,
    Source,
    Target,
    events,
)

COUNT = 40
LAST = 2**32 - 1


def attached(first_id: int, *, presettled: bool = False) -> tuple[Connection, Connection, Any, Any]:
    """Two ends, with a sender at one and a receiver in blocks at the other."""
    client, server = (Connection(role, ConnectionSettings(container_id=role.value)) for role in (Role.CLIENT, Role.SERVER))
    exchanged(client, server)
    client.open(), server.open()
    exchanged(client, server)
    receiver = client.begin().receiver("r")
    receiver.in_blocks = True
    receiver.attach(source=Source(address="q"), target=Target(), snd_settle_mode=int(presettled))
    begun, link = exchanged(client, server)[1]
    begun.session.next_delivery_id = first_id
    begun.session.begin()
    link.link.attach(source=Source(address="q"), target=Target(), snd_settle_mode=int(presettled))
    receiver.grant(COUNT)
    exchanged(client, server)
    return client, server, link.link, receiver


def exchanged(client: Connection, server: Connection) -> tuple[list[Any], list[Any]]:
    """Return the events at the client and at the server until both have no output."""
    mine: list[Any] = []
    theirs: list[Any] = []
    while client.has_data_to_send or server.has_data_to_send:
        theirs += server.receive_data(client.data_to_send())
        mine += client.receive_data(server.data_to_send())
    return mine, theirs


def sent(sender: Any, count: int = COUNT) -> list[bytes]:
    payloads = [b"%d" % number for number in range(count)]
    sender.send_many([b"tag-%d" % number for number in range(count)], payloads)
    return payloads


def seen(event_list: list[Any]) -> list[tuple[int, bytes]]:
    """Id and payload of each message."""
    result: list[tuple[int, bytes]] = []
    for event in event_list:
        if isinstance(event, events.Arrived):
            result += [((event.block.first + at) & LAST, payload) for at, payload in enumerate(event.block.payloads)]
        elif isinstance(event, events.Delivered):
            result += [(delivery.id, delivery.payload) for delivery in event.deliveries]
    return result


@pytest.mark.parametrize("first", [0, 1000, 2**32 - 15])
def test_blocks_have_all_messages_and_are_settled_by_ranges(first: int) -> None:
    client, server, sender, receiver = attached(first)
    payloads = sent(sender)
    server_events, _ = exchanged(client, server)
    assert seen(server_events) == [((first + number) & LAST, payload) for number, payload in enumerate(payloads)]
    assert any(isinstance(event, events.Arrived) for event in server_events)
    assert len(receiver.session.incoming) < COUNT  # only those before a shape was learnt

    receiver.session.dispose_ids([(first, (first + COUNT - 1) & LAST)], Accepted())
    assert not receiver.session.incoming
    assert not receiver.unsettled
    disposed = [event for event in exchanged(client, server)[1] if isinstance(event, events.Disposed)]
    assert {(type(event.state), event.settled) for event in disposed} == {(Accepted, True)}
    assert sum(len(event.deliveries) for event in disposed) == COUNT
    assert not sender.unsettled


def test_a_range_settles_no_other_message() -> None:
    client, server, sender, receiver = attached(0)
    sent(sender)
    exchanged(client, server)
    receiver.session.dispose_ids([(10, 19), (30, 30)], Accepted())
    exchanged(client, server)
    assert sorted(delivery.id for delivery in sender.unsettled.values()) == [*range(10), *range(20, 30), *range(31, COUNT)]


def test_credit_is_used_up_as_one_by_one() -> None:
    client, server, sender, receiver = attached(0)
    sent(sender, 30)
    exchanged(client, server)
    assert (receiver.link_credit, receiver.delivery_count) == (10, 30)


def test_a_block_says_whether_its_sender_has_settled_it() -> None:
    client, server, sender, _ = attached(0, presettled=True)
    sent(sender)
    server_events, _ = exchanged(client, server)
    assert {event.block.settled for event in server_events if isinstance(event, events.Arrived)} == {True}


def test_outcomes_with_fields_are_for_single_deliveries() -> None:
    client, server, sender, receiver = attached(0)
    sent(sender)
    exchanged(client, server)
    with pytest.raises(LocalProtocolError, match="cannot be settled"):
        receiver.session.dispose_ids([(0, 3)], Modified(delivery_failed=True))
