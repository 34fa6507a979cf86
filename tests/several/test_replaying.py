"""A replay over several brokers, without Spark: each row of their tables once."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core import errors
from penstock.connector.schema import source_schema
from penstock.connector.source import AmqpSource

from ..connector.recording import Site
from .helpers import LIMIT

ROWS = 3
INITIAL = {"v": 1, "kind": "initial"}


@pytest.fixture(scope="module")
def sites(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Site]]:
    """Brokers a, b and c, each with three recorded messages of queue q."""
    by_letter = {letter: Site(Path(tmp_path_factory.mktemp("replay"))) for letter in "abc"}
    for letter, site in by_letter.items():
        site.client.call("queue.declare", queue="q")
        site.send("q", body=[f"{letter}{i}".encode() for i in range(ROWS)])
        site.settle("q", ROWS)
        site.record("q")
    yield by_letter
    for site in by_letter.values():
        site.close()


def replay(sites: dict[str, Site], letters: str, **options: str) -> Any:
    urls = ",".join(sites[letter].plane.url for letter in letters)
    reader = AmqpSource({"url": urls, "queue": "q", "mode": "replay", **options}).streamReader(source_schema(("body",)))
    reader.prepareForTriggerAvailableNow()  # type: ignore[attr-defined]
    return reader


def read(reader: Any, start: dict[str, Any], end: dict[str, Any]) -> list[str]:
    batches = [batch for part in reader.partitions(start, end) for batch in reader.read(part)]
    return [body.decode() for batch in batches for body in batch.column("body").to_pylist()]


@pytest.mark.parametrize("limit", ["1", "4", "100"])
def test_a_replay_goes_over_all_brokers_and_again_from_its_checkpoint(sites: dict[str, Site], limit: str) -> None:
    reader, offset, bodies = replay(sites, "abc", maxMessagesPerTrigger=limit), INITIAL, []
    while (end := reader.latestOffset(offset, LIMIT)) != offset:
        batch = read(reader, offset, end)
        assert len(batch) <= int(limit)
        assert sorted(read(replay(sites, "cab"), offset, end)) == sorted(batch)
        bodies += batch
        offset = end
    assert sorted(bodies) == [f"{letter}{i}" for letter in "abc" for i in range(ROWS)]
    with pytest.raises(errors.WrongOffset, match="does not name"):
        replay(sites, "ab").latestOffset(offset, LIMIT)


def test_a_replay_of_one_broker_goes_on_with_two(sites: dict[str, Site]) -> None:
    single = replay(sites, "a")
    offset = single.latestOffset(INITIAL, LIMIT)
    assert read(single, INITIAL, offset) == ["a0", "a1", "a2"]
    two = replay(sites, "ab")
    assert read(two, offset, two.latestOffset(offset, LIMIT)) == ["b0", "b1", "b2"]


def test_a_broker_that_joins_later_has_the_relative_time_of_the_begin(sites: dict[str, Site]) -> None:
    offset = replay(sites, "a", startingTimestamp="-1h").latestOffset(INITIAL, LIMIT)
    both = replay(sites, "ab", startingTimestamp="-1h")
    end = both.latestOffset(offset, LIMIT)
    assert read(both, offset, end) == ["b0", "b1", "b2"]
    assert [part["times"] for part in end["brokers"].values()] == [offset["times"]] * 2


def test_the_archives_of_all_are_read(sites: dict[str, Site]) -> None:
    urls = ",".join(site.plane.url for site in sites.values())
    reader = AmqpSource({"url": urls, "queue": "q", "states": "archived"}).reader(source_schema(("body",)))
    bodies = [body.decode() for part in reader.partitions() for b in reader.read(part) for body in b["body"].to_pylist()]
    assert sorted(bodies) == [f"{letter}{i}" for letter in "abc" for i in range(ROWS)]
