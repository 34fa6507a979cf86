"""`browse.plan`: a batch read has tasks for the messages that are there, not for all sequence numbers ever."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

from penstock.broker_core.actions.browse_plans import split
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine.columns.rowset import BLOCK_ROWS
from penstock.broker_core.service import block_reads

from .helpers import Reader, browse, numbered, send
from .peers import Site


def test_ranges_cover_every_block_once_and_are_of_about_as_many_messages() -> None:
    seed = random.randrange(2**32)
    print("seed", seed)
    drawn = random.Random(seed)
    for _ in range(300):
        blocks, at = [], 0
        for _ in range(drawn.randint(1, 6)):
            at += drawn.randint(0, 3) * 100
            blocks.append((at, at + 99, drawn.choice([1, 2, 50, 99, 100])))
            at += 100
        total = sum(count for _, _, count in blocks)
        wanted = drawn.randint(1, min(total, 40))
        parts = split(blocks, wanted)
        assert len(parts) == wanted
        assert all(first <= last for first, last in parts)
        assert all(left[1] < right[0] for left, right in pairwise(parts))
        held = [sum(first <= number <= last for first, last in parts) for a, b, _ in blocks for number in range(a, b + 1)]
        assert set(held) == {1}
        # If the messages are spread evenly, no part has more than its share, except for its ends.
        shares = [sum(max(0, min(b, last) - max(a, first) + 1) * n / 100 for a, b, n in blocks) for first, last in parts]
        assert max(shares) <= total / wanted + 2
    assert split([], 0) == []


def planned(client: Client, queue: str, **asked: Any) -> list[list[int]]:
    sizes = {name: asked.pop(name) for name in ("minPartitions", "maxMessages") if name in asked}
    parts = client.call("browse.plan", queue=queue, **asked, **sizes)["parts"]
    whole = browse(client, queue, "sequenceNumber", **asked)
    bounds = {name: value for name, value in asked.items() if name not in ("first", "last")}
    browsed = [row for first, last in parts for row in browse(client, queue, "sequenceNumber", **bounds, first=first, last=last)]
    assert browsed == whole
    return list(parts)


def test_a_plan_follows_what_is_there(site: Site) -> None:
    with Client(site.plane.url) as client:
        client.call("queue.declare", queue="q")
        assert planned(client, "q", minPartitions=7) == []
        for _ in range(5):
            send(client, "q", numbered(BLOCK_ROWS))
        reader = Reader(client, "q")
        batch = reader.advance(messages=4 * BLOCK_ROWS + 100)
        reader.read(batch, last=0)
        reader.settle(batch)
        site.service.pack_blocks()
        assert not site.service.state.queues["q"].blocks.keys() & {0, 1, 2, 3}
        tail = 4 * BLOCK_ROWS
        last = 5 * BLOCK_ROWS - 1
        assert planned(client, "q") == [[tail, last]]
        assert len(planned(client, "q", maxMessages=10_000)) == 7  # of 65,436 messages
        assert [part[0] >= tail for part in planned(client, "q", minPartitions=3)] == [True] * 3
        assert planned(client, "q", first=tail + 10, last=tail + 20) == []
        assert planned(client, "q", first=tail + 90, last=tail + 110) == [[tail + 90, tail + 110]]
        assert planned(client, "q", first=9, last=3, states=["archived"]) == []
        assert planned(client, "q", states=["archived"], maxMessages=BLOCK_ROWS * 2) == [
            [0, 87_413],  # a third of the archived messages: four blocks, and a hundred messages in the fifth
            [87_414, 174_828],
            [174_829, last],
        ]
        assert planned(client, "q", states=["archived"], outcome="rejected") == []
        assert planned(client, "q", states=["archived"], since=2**60) == []
        assert planned(client, "q", states=["archived"], first=5, last=7) == [[5, 7]]


def test_a_look_opens_no_block_of_which_it_wants_nothing(site: Site, monkeypatch: Any) -> None:
    opened = []
    real = block_reads.open_block
    monkeypatch.setattr(block_reads, "open_block", lambda journal, entry: opened.append(entry.number) or real(journal, entry))
    with Client(site.plane.url) as client:
        client.call("queue.declare", queue="q")
        for _ in range(3):
            send(client, "q", numbered(BLOCK_ROWS))
        client.call("queue.purge", queue="q")
        site.service.pack_blocks()
        send(client, "q", numbered(1))
        assert len(browse(client, "q")) == 1
        assert browse(client, "q", states=["archived"], outcome="accepted") == []
        assert opened == []
        assert browse(client, "q", "sequenceNumber", states=["archived"], first=BLOCK_ROWS, last=BLOCK_ROWS)
        assert opened == [1]
