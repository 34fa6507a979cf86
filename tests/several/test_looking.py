"""Batch reads over several brokers, without Spark."""

from __future__ import annotations

import pytest

from penstock.broker_core import errors
from penstock.connector.batch.reader import BatchReader

from .helpers import INITIAL, LIMIT, SCHEMA, Site


def looked(site: Site, letters: str = "abc", **options: str) -> list[str]:
    reader = BatchReader(site.options(letters, **options), SCHEMA)
    return sorted(body.decode() for part in reader.partitions() for b in reader.read(part) for body in b["body"].to_pylist())


def test_a_batch_read_sees_what_waits_at_all_and_what_is_in_all_archives(site: Site) -> None:
    for letter, count in (("a", 3), ("c", 2)):
        site.send(letter, count)
    reader = site.reader()
    end = reader.latestOffset(INITIAL, LIMIT)
    site.read(reader, INITIAL, end)
    reader.latestOffset(end, LIMIT)
    for letter in "ab":
        site.send(letter, 1)
    assert looked(site) == ["a3", "b0"]
    assert looked(site, states="archived") == ["a0", "a1", "a2", "c0", "c1"]
    assert looked(site, "ab", states="available,archived") == ["a0", "a1", "a2", "a3", "b0"]


def test_a_broker_that_is_named_twice_is_not_read_twice(site: Site) -> None:
    with pytest.raises(errors.InvalidOption, match="one broker twice"):
        looked(site, url=f"{site.broker('a').url},{site.broker('a').amqp_url}")
