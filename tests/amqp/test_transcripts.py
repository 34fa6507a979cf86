"""Golden transcripts: the frames on the wire in each scenario, in readable files.

`PENSTOCK_WRITE_TRANSCRIPTS=1 pytest tests/amqp/test_transcripts.py` writes them again; read the diff before you commit it. Every
scenario's input is also fed octet by octet between the application's actions, and must have the same meaning.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from . import scenarios_errors, scenarios_sasl, scenarios_talks
from .wire import Wire

FOLDER = Path(__file__).parent / "transcripts"
#: One function, one file of the same name in transcripts/.
SCENARIOS = [
    scenario
    for room in (scenarios_talks, scenarios_sasl, scenarios_errors)
    for name, scenario in sorted(vars(room).items())
    if getattr(scenario, "__module__", "") == room.__name__ and name[0].islower()
]


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda f: f.__name__)
def test_transcript(scenario: Callable[[], Wire]) -> None:
    text = "\n".join(scenario().lines) + "\n"
    path = FOLDER / f"{scenario.__name__}.txt"
    if os.environ.get("PENSTOCK_WRITE_TRANSCRIPTS"):
        path.write_text(text, encoding="utf-8")
    assert path.exists(), "no transcript yet: run with PENSTOCK_WRITE_TRANSCRIPTS=1"
    assert text == path.read_text(encoding="utf-8")


@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda f: f.__name__)
def test_transcript_octet_by_octet(scenario: Callable[[], Wire], monkeypatch: pytest.MonkeyPatch) -> None:
    whole = scenario()

    def slowly(self: Wire, data: bytes, text: str | None = None) -> list[object]:
        self.input += data
        new_events = [event for octet in data for event in self.us.receive_data(bytes((octet,)))]
        self.events += new_events
        self._sent()
        return list(new_events)

    monkeypatch.setattr(Wire, "octets", slowly)
    bytewise = scenario()
    assert [line for line in bytewise.lines if line.startswith("  <-") and "end of" not in line] == [
        line for line in whole.lines if line.startswith("  <-") and "end of" not in line
    ]
    assert list(map(type, bytewise.events)) == list(map(type, whole.events))
    assert bytewise.us.state is whole.us.state


def test_no_transcript_without_its_scenario() -> None:
    assert {path.stem for path in FOLDER.glob("*.txt")} == {scenario.__name__ for scenario in SCENARIOS}
