"""Q8: a selector over columns has the result of a plain three-valued evaluation of each message."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pyarrow as pa
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from penstock.broker_core.amqp import RemoteProtocolError
from penstock.broker_core.messages.encoding.reference import decoded
from penstock.broker_core.selectors import matches, parse, selector

from . import generated, reference

# The same examples in every run; PENSTOCK_HYPOTHESIS=random looks further.
STEADY = settings(derandomize=os.environ.get("PENSTOCK_HYPOTHESIS") != "random", deadline=None, database=None)
FEW = settings(STEADY, max_examples=60, phases=set(Phase) - {Phase.shrink})


def check(text: str, payload: pa.RecordBatch, known: list[dict[Any, Any]]) -> None:
    compiled = parse(text)
    expected = [reference.condition(compiled.tree, message) is True for message in known]
    assert matches(compiled, payload).tolist() == expected, compiled.text


@FEW
@given(generated.SELECTORS, st.lists(generated.encoded_messages(), min_size=1, max_size=6))
def test_encoded_messages_match_as_one_at_a_time_with_their_exact_types(text: str, rows: list[Any]) -> None:
    check(text, generated.encoded_payload(rows), [row[2] for row in rows])


@FEW
@given(generated.SELECTORS, generated.columnar_payloads())
def test_columnar_messages_match_as_one_at_a_time(text: str, sent: tuple[pa.RecordBatch, list[Any]]) -> None:
    check(text, *sent)


@FEW
@given(generated.SELECTORS)
def test_the_canonical_text_says_the_same_and_is_its_own(text: str) -> None:
    compiled = parse(text)
    again = parse(compiled.text)
    assert again.text == compiled.text
    assert again == compiled
    assert again.tree == compiled.tree


@FEW
@given(generated.SELECTORS, st.lists(generated.encoded_messages(), min_size=1, max_size=6), st.data())
def test_a_malformed_message_matches_nothing_and_changes_nothing_for_its_neighbours(
    text: str, rows: list[Any], data: Any
) -> None:
    damaged = [(_damaged(row[0], data), *row[1:]) if data.draw(st.booleans()) else row for row in rows]
    compiled = parse(text)
    together = matches(compiled, generated.encoded_payload(damaged)).tolist()
    assert together == [bool(matches(compiled, generated.encoded_payload([row]))[0]) for row in damaged]
    for (octets, *_), matched in zip(damaged, together, strict=True):
        assert not matched or _readable(octets)


def _damaged(octets: bytes, data: Any) -> bytes:
    if data.draw(st.booleans()):
        return octets[: data.draw(st.integers(0, max(len(octets) - 1, 0)))]
    place = data.draw(st.integers(0, max(len(octets) - 1, 0)))
    return octets[:place] + bytes([data.draw(st.integers(0, 255))]) + octets[place + 1 :]


def _readable(octets: bytes) -> bool:
    """Return True if the sections can be measured. The content of other sections does not matter."""
    try:
        decoded(octets, set())
    except RemoteProtocolError:
        return False
    return True


def test_chunks_of_a_payload_are_put_together_in_order(monkeypatch: Any) -> None:
    payload = pa.RecordBatch.from_arrays([pa.array([f"{n % 3}" for n in range(10)]), pa.array([b""] * 10)], ["subject", "body"])
    whole = matches(parse("JMSType = '1'"), payload)
    monkeypatch.setattr(selector, "CHUNK_ROWS", 3)
    assert np.array_equal(matches(parse("JMSType = '1'"), payload), whole)
    assert whole.tolist() == [n % 3 == 1 for n in range(10)]
