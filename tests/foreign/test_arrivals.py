"""Arrivals from a broker, in columns."""

from __future__ import annotations

import numpy as np
import pytest

from penstock.broker_core.amqp.deliveries import Block
from penstock.connector.foreign import arrivals
from penstock.connector.foreign.arrivals import Settled, grouped, ranges

BLOCKS = [Block(7, [b"a", b"bb"]), Block(2**32 - 2, [b"ccc", b"", b"e"]), Block(5, [b"f"], settled=True)]


def test_a_group_has_the_messages_of_its_blocks() -> None:
    (group,) = grouped(3, 1000, 1, BLOCKS)
    assert group.message.to_pylist() == [b"a", b"bb", b"ccc", b"", b"e", b"f"]
    assert group.ids.tolist() == [7, 8, 2**32 - 2, 2**32 - 1, 0, -1]
    assert (group.queue, group.time, group.octets) == (3, 1000, 8)


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
    assert rest.slice(1, 2).settled.ids.tolist() == [2**32 - 1, 0]


def test_neighbours_are_accepted_as_ranges_and_only_over_their_connection() -> None:
    (group,) = grouped(0, 0, 1, BLOCKS)
    settled = [group.settled, Settled(2, np.array([50])), Settled(1, np.array([9, 10, 20]))]
    (found,) = ranges(settled, 1, 100)
    assert found == [(7, 8), (2**32 - 2, 2**32 - 1), (0, 0), (9, 10), (20, 20)]
    assert ranges(settled, 3, 100) == []


def test_no_part_has_more_than_so_many() -> None:
    assert ranges([Settled(1, np.arange(25))], 1, 10) == [[(0, 9)], [(10, 19)], [(20, 24)]]


def test_blocks_of_more_octets_than_an_array_has_offsets_for_are_several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = grouped(0, 0, 1, BLOCKS)
    monkeypatch.setattr(arrivals, "MOST_OCTETS", 1)
    parts = list(grouped(0, 0, 1, BLOCKS))
    assert [len(part.ids) for part in parts] == [len(block.payloads) for block in BLOCKS]
    assert [octets for part in parts for octets in part.message.to_pylist()] == whole.message.to_pylist()
