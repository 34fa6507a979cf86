"""S7: the keys of published writes: the highest number of each, forgotten a year after its last write, counted by user."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.limits import PUBLISH_KEY_AGE
from penstock.broker_core.engine.commands import PublishKey
from penstock.broker_core.engine.model.publish_keys import PublishKeys

from .harness import Engine

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
    assert len(keys) == 1, "the next publish removes old keys"
    assert (keys.count("alice"), keys.count("bob"), keys.count("carol")) == (0, 0, 1)


def test_keys_are_the_same_after_a_snapshot() -> None:
    keys = PublishKeys()
    keys.note(A, 100, "alice")
    keys.note(B, 200, "bob")
    again = PublishKeys.from_json(keys.to_json(), keys.skipped)
    assert again.to_json() == keys.to_json()
    assert (again.last(A, 300), again.count("alice"), again.count("bob")) == (3, 1, 1)


@pytest.mark.parametrize("life", [lambda engine: engine, Engine.recovered, Engine.from_snapshot])
@pytest.mark.parametrize("first", [True, False])
def test_a_wall_clock_that_is_set_years_ahead_makes_no_key_old(life: Callable[[Engine], Engine], first: bool) -> None:
    """S7: otherwise a repeated write would be sent again. `first`: the key is looked up before the next publish."""
    engine = Engine()
    engine.run(c.DeclareQueue("q"))
    day = 24 * 3600

    def publish(key: PublishKey) -> bool:
        write = f"write {len(engine.log)}"
        engine.run(c.StageMessages(f"stage {write}", "q", 1, 1))
        return bool(engine.run(c.Publish([f"stage {write}"], key))[1])

    assert not publish(A)
    wall = engine.wall
    engine.wall += 3 * PUBLISH_KEY_AGE
    if first:
        assert engine.run(c.IsPublished(A))[0]
    assert not publish(B), "a publish at the new time forgets no key"
    engine = life(engine)
    engine.wall = wall + 3 * PUBLISH_KEY_AGE
    assert publish(A)
    for _ in range(363):
        engine.pass_time(day)
        engine.run(c.Enqueue("q", 1, 1))
    assert engine.run(c.IsPublished(A))[0]
    for _ in range(3):
        engine.pass_time(day)
        engine.run(c.Enqueue("q", 1, 1))
    assert not engine.run(c.IsPublished(A))[0], "a year has passed, day by day"
