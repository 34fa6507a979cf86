"""C1, C4, C5, C6, C8, C9, C11, Q1, Q4, Q5, Q12, Q13, Q15 to Q17, Q20 to Q23, E1, E2, D2: all of the plane together.

Random clients use queues of every kind, while an operator pauses, purges, alters, moves and deletes, and the journal is cleaned.
Each promise has its own test elsewhere; this test combines them. Results are not predicted. The checks are `invariants`, that the
broker ends no connection and no session, and that it logs no exception.

The seed is in the test's name. PENSTOCK_HISTORIES=n plays n histories, from 0 on.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.errors import ResourceLimit

from ..journal.lying_disk import LyingDisk
from .harness import Stage, stage
from .invariants import left_behind, look, miscounted, waits_in_vain
from .library_client import PATIENCE_S
from .playing import Game, Player

QUEUES: dict[str, dict[str, Any]] = {
    "fifo": {},
    "levels": {"type": "priority", "levels": 3},
    "last": {"type": "lastvalue", "key": "groupId", "maxKeys": 6},
    "held": {"groups": "held"},
    "sticky": {"type": "priority", "levels": 2, "groups": "sticky"},
    "ring": {"maxMessages": 5, "overflow": "ring"},
    "ring of levels": {"type": "priority", "levels": 3, "maxMessages": 5, "overflow": "ring", "groups": "sticky"},
    "block": {"maxMessages": 5},
    "block bytes": {"maxBytes": 600},
    "reject": {"maxMessages": 5, "overflow": "reject"},
    "single": {"consumers": "single"},
    "dead": {"maxMessages": 50},
    "dying": {"deadLetterQueue": "dead", "maxAttempts": 2, "refusedByAll": "deadLetter", "expired": "deadLetter"},
    "back": {"type": "priority", "levels": 2, "rejected": "return", "groups": "held"},
    "locks": {"lockTimeout": 30},
    "locked groups": {"lockTimeout": 40, "groups": "held", "consumers": "single"},
    "brief": {"messageTtl": 60, "expired": "deadLetter", "deadLetterQueue": "dead"},
    "once": {"duplicateWindow": 20},
    "retries": {"retryDelay": 10, "retryBackoff": 2, "maxRetryDelay": 50},
    "retries in groups": {"retryDelay": 25, "groups": "held"},
    "retries in order": {"retryDelay": 20, "consumers": "single", "rejected": "return"},
}
EXCHANGES = [
    ("alternate", "fanout", {"unroutable": "drop"}),
    ("topic", "topic", {"alternate": "alternate"}),
    ("fan", "fanout", {}),
    ("direct", "direct", {"alternate": "fifo"}),
]
ALTERATIONS: list[tuple[str, dict[str, Any]]] = [
    *(("single", {"consumers": consumers}) for consumers in ("single", "all")),
    *(("block", {"maxMessages": most}) for most in (3, 5, 8)),
    *(("block", {"overflow": overflow}) for overflow in ("block", "reject")),
    *(("ring", {"maxMessages": most}) for most in (3, 6)),
    *(("dying", {"maxAttempts": attempts}) for attempts in (1, 2, 3)),
    *(("retries in order", {"consumers": consumers}) for consumers in ("single", "all")),
]
DELETED = ["fifo", "held", "block", "single", "locked groups", "ring of levels", "reject"]  # and declared again
MOVED = ["fifo", "levels", "held", "ring", "block", "dying", "dead", "single", "back", "retries in groups", "retries in order"]

SEEDS = [*range(8), 44, 89, 92]  # the last ones found errors in the stages of a deleted queue
if "PENSTOCK_HISTORIES" in os.environ:
    SEEDS = list(range(int(os.environ["PENSTOCK_HISTORIES"])))
STEPS = 300
CALM = 20  # steps from one comparison to the next
PLAYERS = 3
OPERATED = 0.05  # share of the steps
CLEANED = 0.1
SEGMENT_BYTES = 1_000  # and retention, so that there is something to clean


def _declaration(queue: str) -> c.DeclareQueue:
    options = dict(QUEUES[queue])
    return c.DeclareQueue(queue, options.pop("type", "fifo"), options)


def _declare(made: Stage) -> None:
    for queue in QUEUES:
        made.service.submit(_declaration(queue))
    for exchange, kind, options in EXCHANGES:
        made.service.submit(c.DeclareExchange(exchange, kind, options))
    made.service.submit(c.Bind("topic", "levels", "#", selector="n = 1"))
    for queue, key in {"fifo": "a.*", "ring": "a.#", "block": "*.b", "held": "#.c", "once": "a.b"}.items():
        made.service.submit(c.Bind("topic", queue, key))
    for queue in ("reject", "block bytes", "last", "sticky"):
        made.service.submit(c.Bind("fan", queue))
    for queue, key in {"single": "a.b", "dying": "a.b", "brief": "a.c"}.items():
        made.service.submit(c.Bind("direct", queue, key))
    made.service.submit(c.Bind("alternate", "locks"))


def _clean_small(made: Stage) -> None:
    """Set segments and a retention below the minimum of the settings."""
    made.service.journal._options = replace(made.service.journal._options, segment_bytes=SEGMENT_BYTES)
    object.__setattr__(made.service.settings, "retention_bytes", SEGMENT_BYTES)


def _operate(game: Game) -> None:
    """A client of another protocol changes a queue."""
    choice = game.random.choice
    queue = choice(DELETED)
    source, target = game.random.sample(MOVED, 2)
    wishes: list[list[c.Command[Any]]] = [
        [c.PauseQueue(choice(game.queues))],
        [c.PauseQueue(paused, paused=False) for paused in game.queues],
        [c.Purge(choice(game.queues))],
        [c.AlterQueue(*choice(ALTERATIONS))],
        [choice([c.Copy(source, target), c.Move(source, target), c.Redrive("dead"), c.Redrive("dying")])],
        [c.DeleteQueue(queue, force=True), _declaration(queue)],
    ]
    commands = choice(wishes)
    game.acts.append(f"the operator: {commands[0]}")
    with contextlib.suppress(ResourceLimit):  # of where it would move something to
        for command in commands:
            game.stage.service.submit(command)


def _present(game: Game) -> list[Player]:
    game.players = [player for player in game.players if not player.gone]
    while len(game.players) < PLAYERS:
        game.join()
    return game.players


def _step(game: Game) -> None:
    players = _present(game)
    if game.random.random() < CLEANED:
        game.acts.append("the cleaner")
        game.stage.service.cleaner.clean()
    elif game.random.random() < OPERATED:
        _operate(game)
    else:
        game.random.choice(players).act()
    for player in players:
        if game.random.random() < 0.7:
            player.pump()


def _compare(game: Game) -> None:
    """Wait until the broker is idle. Then no link waits for available messages, and the counts are right."""
    for _ in range(3):
        for player in game.players:
            if not player.gone:
                player.barrier()
        game.stage.settle()
    _soon(game, lambda: look(game.stage, waits_in_vain))
    assert not look(game.stage, miscounted)


def _soon(game: Game, what_is_wrong: Callable[[], Any]) -> None:
    """Wait until the frames under way have arrived."""
    end = time.monotonic() + PATIENCE_S
    while wrong := what_is_wrong():
        assert time.monotonic() < end, wrong
        time.sleep(0.01)
        for player in game.players:
            player.pump()


def _end(game: Game) -> None:
    """End all clients in different ways, and check that no state of them remains."""
    for player in game.players:
        if not player.gone:
            game.random.choice([player.leave, player.drop])()
    _soon(game, lambda: look(game.stage, left_behind))
    assert not look(game.stage, miscounted)


def _play(game: Game) -> None:
    for number in range(1, STEPS + 1):
        _step(game)
        if number % CALM == 0:
            _compare(game)
    for queue in QUEUES:
        game.stage.service.submit(c.PauseQueue(queue, paused=False))
    _compare(game)
    _end(game)


@pytest.mark.parametrize("seed", SEEDS)
def test_everything_at_once(seed: int, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """No link waits for available messages, all counts equal the columns, and lost clients leave nothing behind."""
    tight = {"amqp_credit": 20, "amqp_max_unsettled": 30} if seed % 2 else {}
    with stage(tmp_path, disk=LyingDisk(), clean_bandwidth=1 << 40, **tight) as made:
        _clean_small(made)
        _declare(made)
        game = Game(made, Random(seed), list(QUEUES), [name for name, _, _ in EXCHANGES])
        try:
            _play(game)
        except BaseException:
            print("\n".join(game.acts[-60:]))
            raise
        finally:
            for player in game.players:
                player.drop()
        assert made.service.state.dropped, "nothing was cleaned"
    logged = [record.getMessage() for record in caplog.records if record.exc_info or record.levelno >= logging.ERROR]
    assert not logged
