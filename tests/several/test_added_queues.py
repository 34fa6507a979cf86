"""Queues are added under a checkpoint of a query over one broker or several, together with brokers or without."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from penstock.broker_core.client.flight import Client

from .helpers import INITIAL, LIMIT, Site


@pytest.fixture
def added(site: Site) -> Iterator[str]:
    """A second queue at each broker."""
    name = f"{site.queue[:90]}-other"
    for letter in "abc":
        site.call(letter, "queue.declare", queue=name)
    yield name
    for letter in "abc":
        site.call(letter, "queue.delete", queue=name, force=True)


def send_other(site: Site, letter: str, name: str, count: int) -> None:
    first, queue = site.sent[letter], site.queue
    site.queue = name
    site.send(letter, count)
    site.queue = queue
    assert site.sent[letter] == first + count


@pytest.mark.parametrize("before", ["a", "ab"])
@pytest.mark.parametrize("lease", ["me", None])
def test_queues_and_brokers_are_added_and_the_unfinished_batch_comes_first(
    site: Site, added: str, before: str, lease: str | None
) -> None:
    options = {} if lease is None else {"lease": lease}
    for letter in before:
        site.send(letter, 2)
    reader = site.reader(before, **options)
    first = reader.latestOffset(INITIAL, LIMIT)
    bodies = site.read(reader, INITIAL, first)
    site.send("a", 1)
    second = reader.latestOffset(first, LIMIT)  # planned, and then the driver dies
    assert reader.partitions(first, second)
    for letter in "abc":
        send_other(site, letter, added, 2)
    grown = site.reader("abc", queue=f"{added},{site.queue}", **options)
    assert site.read(grown, first, second) == ["a2"]
    bodies += ["a2"]
    batches, last = site.drained(grown, second)
    assert grown.latestOffset(last, LIMIT) == last
    assert sorted([*bodies, *(body for batch in batches for body in batch)]) == site.expected()
    for letter in "abc":
        with Client(site.broker(letter).url) as client:
            for queue in (site.queue, added):
                stat = client.call("queue.stat", queue=queue)
                assert (stat["available"], stat["acquired"]) == (0, 0)
    assert sorted(last["brokers"]) == sorted(map(site.id, "abc"))
    assert [part.get("firstQueue") for part in (last["brokers"][site.id(letter)] for letter in before)] == [site.queue] * len(
        before
    )
