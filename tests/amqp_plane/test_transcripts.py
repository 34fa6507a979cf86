"""Golden transcripts of the plane: the frames between a client and the broker, in readable files.

`PENSTOCK_WRITE_TRANSCRIPTS=1 pytest tests/amqp_plane/test_transcripts.py` writes them again; read the diff before you commit it.
A line begins with its author: `->` the client, `<-` the broker, `!` the operator, `=` the content of the queue, `#` a remark.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from . import (
    scenarios_acquisition,
    scenarios_attach,
    scenarios_blocking,
    scenarios_detached,
    scenarios_ends,
    scenarios_exchanges,
    scenarios_failed_transactions,
    scenarios_incoming,
    scenarios_locks,
    scenarios_nodes,
    scenarios_outgoing,
    scenarios_pipelined,
    scenarios_retries,
    scenarios_subscriptions,
    scenarios_transactions,
)
from .harness import Scenario, stage

FOLDER = Path(__file__).parent / "transcripts"
SCENARIOS = [
    *scenarios_attach.SCENARIOS,
    *scenarios_incoming.SCENARIOS,
    *scenarios_outgoing.SCENARIOS,
    *scenarios_ends.SCENARIOS,
    *scenarios_pipelined.SCENARIOS,
    *scenarios_locks.SCENARIOS,
    *scenarios_retries.SCENARIOS,
    *scenarios_detached.SCENARIOS,
    *scenarios_nodes.SCENARIOS,
    *scenarios_blocking.SCENARIOS,
    *scenarios_subscriptions.SCENARIOS,
    *scenarios_exchanges.SCENARIOS,
    *scenarios_transactions.SCENARIOS,
    *scenarios_failed_transactions.SCENARIOS,
    *scenarios_acquisition.SCENARIOS,
]


def played(scenario: Scenario, folder: Path) -> str:
    """Play a scenario with its own settings; return its transcript."""
    settings = {name: value() if callable(value) else value for name, value in getattr(scenario, "settings", {}).items()}
    with stage(folder, **settings) as made:
        made.declare("q")
        try:
            scenario(made)
        except BaseException:
            print("\n".join(made.lines))
            raise
        return "\n".join(made.lines) + "\n"


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda f: f.__name__)
def test_transcript(scenario: Scenario, tmp_path: Path) -> None:
    text = played(scenario, tmp_path)
    path = FOLDER / f"{scenario.__name__}.txt"
    if os.environ.get("PENSTOCK_WRITE_TRANSCRIPTS"):
        path.write_text(text, encoding="utf-8")
    assert path.exists(), "no transcript yet: run with PENSTOCK_WRITE_TRANSCRIPTS=1"
    assert text == path.read_text(encoding="utf-8")


def test_no_transcript_without_its_scenario() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {scenario.__name__ for scenario in SCENARIOS}
