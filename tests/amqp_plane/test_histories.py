"""C1, C4, C5, C6, C8, Q1, Q10, Q12 over AMQP: generated histories of links that take, settle, give back, detach, steal and drop.

The seed is in the test's name. PENSTOCK_HISTORIES=n plays n histories of each kind.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from ..journal.lying_disk import LyingDisk
from .harness import stage
from .history import QUEUE, History

HISTORIES = int(os.environ.get("PENSTOCK_HISTORIES", "8"))
STEPS = 60
BURSTS = 15


def _play(history: History, steps: int, burst: int) -> None:
    try:
        for _ in range(steps):
            for _ in range(history.random.randint(1, burst)):
                history.step()
                for player in history.players:
                    player.pump()
            history.calm()
            history.check()
    except BaseException:
        print("\n".join(history.acts[-60:]))
        raise
    finally:
        for player in history.players:
            player.drop()


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_one_step_at_a_time(seed: int, tmp_path: Path) -> None:
    """Conservation, one holder, credit, order, delivery-count and first-acquirer, and no link waits for available messages."""
    with stage(tmp_path, disk=LyingDisk()) as made:
        made.declare(QUEUE)
        _play(History(made, seed, exact=True), STEPS, 1)


@pytest.mark.parametrize("seed", range(HISTORIES))
def test_many_things_at_once(seed: int, tmp_path: Path) -> None:
    """The histories agree except for order and counts, which then depend on the order of arrival."""
    with stage(tmp_path, disk=LyingDisk(), amqp_max_unsettled=20, amqp_max_unsettled_per_connection=30) as made:
        made.declare(QUEUE)
        _play(History(made, seed, exact=False), BURSTS, 12)
