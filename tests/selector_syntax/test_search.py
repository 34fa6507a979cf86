"""Q8: LIKE matches as a plain matcher does, and no pattern makes it slow: a user's binding cannot delay other users."""

from __future__ import annotations

import random
import time

import numpy as np
import pyarrow as pa
import pytest

from penstock.broker_core.amqp import Message
from penstock.broker_core.selectors import like_patterns, matches, parse
from penstock.broker_core.selectors.like_search import MAX_TEXT_OCTETS, fitting

from .reference import like

AWKWARD = {
    "one piece with gaps": ("%a" + "_" * 3900, "random"),
    "a long piece that nearly fits everywhere": ("%" + "a" * 3900 + "b%a", "alike"),
    "many pieces that fit everywhere": ("%" + "%".join("a" * 120 for _ in range(30)) + "%b%a", "alike"),
    "letters and gaps in turn": ("%" + "a_" * 1950 + "b%", "alike"),
}


@pytest.mark.parametrize("seed", range(8))
def test_patterns_find_what_a_plain_matcher_finds(seed: int) -> None:
    chosen = random.Random(seed)
    for _ in range(300):
        letters = chosen.choice(["ab", "abé", "a\U0001f600é\0", "ab\n"])
        pattern = "".join(chosen.choices(letters + "%_%_!", k=chosen.randrange(9)))
        escape = chosen.choice([None, "!"])
        texts = [
            None if chosen.random() < 0.2 else "".join(chosen.choices(letters + "%_!", k=chosen.randrange(12))) for _ in range(6)
        ]
        array = pa.array(["é", "z", *texts, "a"]).slice(2, len(texts))
        matched = fitting(array, like_patterns.parts(pattern, escape)).tolist()
        assert matched == [text is not None and like(text, pattern, escape) for text in texts], (pattern, escape, texts)


def test_many_long_texts_are_searched_part_by_part() -> None:
    texts = ["x" * (1000 + number) + ("ab" if number % 3 else "b") + "y" for number in range(3000)]
    assert fitting(pa.array(texts), like_patterns.parts("%ab_", None)).tolist() == [number % 3 > 0 for number in range(3000)]


@pytest.mark.parametrize("name", AWKWARD)
def test_an_awkward_pattern_costs_no_more_than_to_compare_each_character_with_each(name: str) -> None:
    pattern, kind = AWKWARD[name]
    text = "".join(random.Random(7).choices("ab", k=MAX_TEXT_OCTETS)) if kind == "random" else "a" * MAX_TEXT_OCTETS
    octets = np.frombuffer(text.encode(), np.uint8)

    def compare_all() -> None:
        for code in range(4096):
            np.count_nonzero(octets == code % 256)

    allowed = min(_cpu_time(compare_all) for _ in range(3))
    parsed = parse(f"p LIKE '{pattern}'")
    sent = Message(application_properties={"p": text}, data=[b""]).encode()
    payload = pa.RecordBatch.from_arrays([pa.array([sent], pa.binary())], ["message"])
    taken = min(_cpu_time(lambda: matches(parsed, payload)) for _ in range(3))
    assert taken < 10 * allowed, f"{taken:.3f} s, where to compare all takes {allowed:.3f} s"


def _cpu_time(call: object) -> float:
    begin = time.process_time()
    call()  # type: ignore[operator]
    return time.process_time() - begin


@pytest.mark.parametrize("pattern", ["%a%", "a%", "%a", "%a%a_", "a"])
def test_like_is_unknown_for_a_text_that_is_too_long_to_look_into(pattern: str) -> None:
    texts = ["a" * MAX_TEXT_OCTETS, "a" * (MAX_TEXT_OCTETS + 1), "b", None]
    sent = [Message(application_properties={"p": text}, data=[b""]).encode() for text in texts]
    payload = pa.RecordBatch.from_arrays([pa.array(sent, pa.binary())], ["message"])
    fits = pattern != "a"
    assert matches(parse(f"p LIKE '{pattern}'"), payload).tolist() == [fits, False, False, False]
    assert matches(parse(f"NOT (p LIKE '{pattern}')"), payload).tolist() == [not fits, False, True, False]
    assert matches(parse(f"p NOT LIKE '{pattern}'"), payload).tolist() == [not fits, False, True, False]
    assert matches(parse(f"p LIKE '{pattern}' OR p IS NOT NULL"), payload).tolist() == [True, True, True, False]
