"""S7: the keys of published writes: the highest number of each, forgotten a year after its last write, counted by user."""

from __future__ import annotations

from penstock.broker_core.engine.columns.limits import PUBLISH_KEY_AGE
from penstock.broker_core.engine.commands import PublishKey
from penstock.broker_core.engine.model.publish_keys import PublishKeys

A, B = PublishKey("txn", "a", 3), PublishKey("stream", "b", 7)


def test_a_key_is_known_by_its_highest_number_until_a_year_after_its_last_write() -> None:
    keys = PublishKeys()
    keys.note(A, 100, "alice")
    keys.note(B, 200, "alice")
    keys.note(A._replace(number=4), 300, "bob")
    assert (keys.last(A, 400), keys.last(B, 400)) == (4, 7)
    assert (keys.count("alice"), keys.count("bob")) == (1, 1)
    assert keys.last(B, 200 + PUBLISH_KEY_AGE) == 7
    assert keys.last(B, 201 + PUBLISH_KEY_AGE) is None
    keys.note(PublishKey("txn", "c", 1), 301 + PUBLISH_KEY_AGE, "carol")
    assert len(keys) == 1, "what is too old goes with the next publish"
    assert (keys.count("alice"), keys.count("bob"), keys.count("carol")) == (0, 0, 1)


def test_keys_are_the_same_after_a_snapshot_and_those_of_an_older_one_count_from_it() -> None:
    keys = PublishKeys()
    keys.note(A, 100, "alice")
    keys.note(B, 200, "bob")
    again = PublishKeys.from_json(keys.to_json(), 999)
    assert again.to_json() == keys.to_json()
    assert (again.last(A, 300), again.count("alice"), again.count("bob")) == (3, 1, 1)
    older = PublishKeys.from_json([["txn", "a", 3]], 500)
    assert older.last(A, 500 + PUBLISH_KEY_AGE) == 3
    assert older.last(A, 501 + PUBLISH_KEY_AGE) is None
