"""Arrivals from a broker, in columns."""

from __future__ import annotations

from collections import deque

import numpy as np
import pytest

from penstock.broker_core.amqp.deliveries import DeliveryBlock
from penstock.connector.foreign import arrivals
from penstock.connector.foreign.arrivals import ArrivalGroup, DeliveryIds, add, grouped, ranges

BLOCKS = [DeliveryBlock(7, [b"a", b"bb"]), DeliveryBlock(2**32 - 2, [b"ccc", b"", b"e"]), DeliveryBlock(5, [b"f"], settled=True)]


def test_a_group_has_the_messages_of_its_blocks() -> None:
    (group,) = grouped(3, 1000, 1, BLOCKS)
    assert group.message.to_pylist() == [b"a", b"bb", b"ccc", b"", b"e", b"f"]
    assert group.ids.tolist() == [7, 8, 2**32 - 2, 2**32 - 1, 0, -1]
    assert (group.queues.tolist(), group.times.tolist(), group.octets) == ([3] * 6, [1000] * 6, 8)


@pytest.mark.parametrize(
    ("rows", "octets", "alone", "count"),
    [(10, 100, False, 6), (2, 100, False, 2), (10, 3, False, 2), (10, 6, False, 4), (10, 0, False, 0), (10, 0, True, 1)],
)
def test_a_group_is_cut_at_limits(rows: int, octets: int, alone: bool, count: int) -> None:
    (group,) = grouped(0, 0, 1, BLOCKS)
    assert group.upto(rows, octets, alone=alone) == count


def test_the_rest_of_a_group_is_cut_in_its_turn() -> None:
    (group,) = grouped(0, 0, 1, BLOCKS)
    rest = group.slice(2, 4)
    assert (rest.message.to_pylist(), rest.octets, rest.upto(9, 4, alone=False)) == ([b"ccc", b"", b"e", b"f"], 5, 3)
    assert (rest.queues.tolist(), rest.slice(1, 2).queues.tolist()) == ([0] * 4, [0] * 2)
    assert rest.slice(1, 2).settled.ids.tolist() == [2**32 - 1, 0]


def test_neighbours_are_accepted_as_ranges_and_only_over_their_connection() -> None:
    (group,) = grouped(0, 0, 1, BLOCKS)
    settled = [group.settled, DeliveryIds(2, np.array([50])), DeliveryIds(1, np.array([9, 10, 20]))]
    (accepted,) = ranges(settled, 1, 100)
    assert accepted == [(7, 8), (2**32 - 2, 2**32 - 1), (0, 0), (9, 10), (20, 20)]
    assert ranges(settled, 3, 100) == []


def test_no_part_has_more_than_so_many() -> None:
    assert ranges([DeliveryIds(1, np.arange(25))], 1, 10) == [[(0, 9)], [(10, 19)], [(20, 24)]]


def test_blocks_of_more_octets_than_an_array_has_offsets_for_are_several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = grouped(0, 0, 1, BLOCKS)
    monkeypatch.setattr(arrivals, "MOST_OCTETS", 1)
    parts = list(grouped(0, 0, 1, BLOCKS))
    assert [len(part.ids) for part in parts] == [len(block.payloads) for block in BLOCKS]
    assert [octets for part in parts for octets in part.message.to_pylist()] == whole.message.to_pylist()


def test_a_message_that_no_array_can_hold_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(arrivals, "MOST_OF_ONE", 7)
    monkeypatch.setattr(arrivals, "MOST_OCTETS", 7)
    blocks = grouped(0, 0, 1, [DeliveryBlock(0, [b"a" * 7]), DeliveryBlock(1, [b"b" * 8])])
    assert next(blocks).octets == 7
    with pytest.raises(arrivals.OversizedMessage, match=r"a message of 8 octets is larger than the 7 .*take it from its queue"):
        next(blocks)


def test_a_trickle_of_messages_becomes_few_groups_in_order() -> None:
    """Two queues that come in turn do not keep them apart."""
    waiting: deque[ArrivalGroup] = deque()
    for number in range(5000):
        add(waiting, grouped(number % 2, number, 1, [DeliveryBlock(number, [b"%d" % number])]))
    assert len(waiting) < 40
    held = [row for group in waiting for row in zip(group.queues, group.times, group.message.to_pylist(), group.ids, strict=True)]
    assert held == [(number % 2, number, b"%d" % number, number) for number in range(5000)]
    assert sum(group.octets for group in waiting) == sum(len(b"%d" % number) for number in range(5000))


def test_groups_of_two_connections_or_of_many_octets_stay_apart() -> None:
    waiting: deque[ArrivalGroup] = deque()
    for connection, size in ((1, 1), (2, 1), (2, 1 << 16), (2, 1 << 16)):
        add(waiting, grouped(0, 0, connection, [DeliveryBlock(0, [bytes(size)])]))
    assert [(group.connection, group.octets) for group in waiting] == [(1, 1), (2, 1), (2, 1 << 16), (2, 1 << 16)]
