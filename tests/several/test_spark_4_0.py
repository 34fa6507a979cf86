"""A query over several brokers on Spark 4.0 and 4.2: drivers and brokers die, and each message is written once."""

from __future__ import annotations

import random
from contextlib import suppress
from typing import Any

import pytest

from penstock.broker_core import errors
from penstock.connector.brokers import member
from penstock.connector.stream.start_tracking import StartTracker

from ..spark_driver import SPARKS, STEPS, Checkpoint, Died, dying, run
from .helpers import Site


def bodies(batch: Any) -> list[str]:
    return [body.decode() for body in batch.column("body").to_pylist()]


def reader(site: Site, spark: str, **options: str) -> Any:
    made = site.reader(maxMessagesPerTrigger="7", **options)
    return StartTracker(made) if spark == "4.0" else made


@pytest.mark.parametrize("spark", SPARKS)
@pytest.mark.parametrize("loss", ["true", "false"])
def test_exactly_once_whatever_dies(site: Site, spark: str, loss: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(member, "AGAIN_S", 0.0)
    dice, checkpoint = random.Random(spark + loss), Checkpoint()
    for batch in range(16):
        site.send(dice.choice("aabc"), dice.randint(1, 9))
        with suppress(Died):
            step = dying(dice.choice(STEPS), batch)
            run(spark, checkpoint, reader(site, spark, lease="me", failOnBrokerLoss=loss), bodies, step=step)
        if dice.random() < 0.3:
            broker = site.broker(dice.choice("abc"))
            broker.kill()
            broker.start()
    run(spark, checkpoint, reader(site, spark, lease="me", failOnBrokerLoss=loss), bodies, idle=3)
    assert sorted(checkpoint.rows) == site.expected()
    assert max(map(len, checkpoint.table.values())) <= 7
    assert site.counts() == {letter: (0, 0, site.sent[letter]) for letter in "abc"}


def test_a_query_without_a_checkpoint_does_not_take_a_lease_at_any_broker(site: Site) -> None:
    site.send("c", 2)
    run("4.0", Checkpoint(), reader(site, "4.0", lease="me"), bodies)
    with pytest.raises(errors.LeaseInUse, match="belongs to a checkpoint, and this query begins without one"):
        reader(site, "4.0", lease="me").latestOffset()
