"""The answers do not depend on how TCP splits a client's octets: transcripts again, with other reads than the client's writes.

The transcripts of errors run in all ways. A few of the others, chosen by a seed, run in one way each. With `PENSTOCK_SPLITS=all`
all of them run in all ways, which takes about two minutes.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random

import pytest

from . import scenarios_pipelined
from .cutting import octets, randomly, reads
from .harness import Scenario
from .test_transcripts import FOLDER, SCENARIOS, played

SEED = int(os.environ.get("PENSTOCK_SEED", "0")) or Random().getrandbits(32)
CHOSEN = 24  # transcripts of a run, besides those of errors

#: In one commit, the answers are always the same, byte for byte. With a commit after each read, these transcripts differ. They
#: show how a commit combines outcomes in one disposition, when it renews credit, and which messages it accepts after a refused
#: one.
ONE_PASS = {
    "a_full_queue_behind_an_exchange",
    "a_link_is_stolen_on_one_connection",
    "a_sender_is_told_when_it_is_detached",
    "a_target_with_a_routing_key",
    "a_target_without_one_goes_by_the_subject",
    "a_transaction_larger_than_the_credit",
    "an_error_with_its_attach",  # the credit may have been granted
    "anonymous_relay",
    "confirmed_when_the_disk_has_it",
    "credit_follows_the_room_of_a_queue",
    "credit_is_a_window_of_what_is_not_finished",
    "detach_before_the_attach_is_answered",
    "headers_and_selectors_of_bindings",
    "room_in_bytes",
    "send_unsettled_settled_and_mixed",
    "something_of_it_cannot_be_done",
    "the_anonymous_terminus_waits_with_its_outcome",
    "the_disk_is_full",
    "the_receiver_settles_second",
    "what_came_before_an_error_is_served",
    "work_in_a_transaction_that_is_not_there",
}
CUTS = {"octets": octets, "random": randomly(SEED)}
WAYS = [(cut, passes) for cut in CUTS for passes in (False, True)]


def _cases() -> list[tuple[Scenario, str, bool]]:
    errors = scenarios_pipelined.SCENARIOS
    cases = [(scenario, cut, passes) for scenario in SCENARIOS for cut, passes in WAYS if _is_exact(scenario, passes)]
    if os.environ.get("PENSTOCK_SPLITS") == "all":
        return cases
    others = [case for case in cases if case[0] not in errors]
    return [case for case in cases if case[0] in errors] + Random(SEED).sample(others, CHOSEN)


def _is_exact(scenario: Scenario, passes: bool) -> bool:
    return not (passes and scenario.__name__ in ONE_PASS)


@pytest.mark.parametrize(("number"), range(len(_cases())))
def test_transcript_in_pieces(number: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scenario, cut, passes = _cases()[number]
    print(f"PENSTOCK_SEED={SEED}: {scenario.__name__}, {cut}, {'a pass behind each read' if passes else 'one pass'}")
    reads(monkeypatch, CUTS[cut], passes=passes)
    assert played(scenario, tmp_path) == (FOLDER / f"{scenario.__name__}.txt").read_text(encoding="utf-8")


def test_the_exceptions_are_transcripts() -> None:
    assert {scenario.__name__ for scenario in SCENARIOS} >= ONE_PASS
