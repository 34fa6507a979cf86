"""Bare messages that come in columns are measured as those are that AMQP clients send."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.errors import RemoteProtocolError
from penstock.broker_core.amqp.messages import MAX_SECTIONS, scan
from penstock.broker_core.amqp.performatives import Header
from penstock.broker_core.amqp.types import Symbol
from penstock.broker_core.errors import InvalidRequest
from penstock.broker_core.messages.encoding import reference, validity

from . import messages as m
from .amqp_values import STEADY

GOOD = b"\0Su\xa0\1x"
WHOLE = {
    "header": Message(header=Header(durable=True), data=[b"x"]).encode(),
    "delivery annotations": Message(delivery_annotations={Symbol("a"): 1}, data=[b"x"]).encode(),
    "message annotations": Message(message_annotations={Symbol("a"): 1}, data=[b"x"]).encode(),
    "footer": Message(data=[b"x"], footer={Symbol("a"): 1}).encode(),
}
EVEN_DAMAGED = st.one_of(
    m.bare, m.bare.map(lambda octets: octets[:-1]), m.bare.map(lambda octets: octets + GOOD), st.binary(max_size=9)
)


def binary(*messages: bytes) -> pa.Array:
    return pa.array(messages, pa.binary())


def right(octets: bytes) -> bool:
    try:
        reference.row(octets, None, m.ALL_COLUMNS)
    except RemoteProtocolError:
        return False
    return all(0x73 <= section.code <= 0x77 for section in scan(octets))


@STEADY
@given(st.lists(EVEN_DAMAGED, max_size=6), st.integers(0, 2))
def test_the_first_that_the_library_would_not_take_is_named(messages: list[bytes], skipped: int) -> None:
    """On slices from anywhere in a column, generated and damaged: neither more nor less is refused than by the plain decoder."""
    wrong = [row for row, octets in enumerate(messages) if not right(octets)]
    column = binary(*[b"left out"] * skipped, *messages).slice(skipped)
    if not wrong:
        validity.check_column(column)
        return
    with pytest.raises(InvalidRequest, match=f"column 'message' in row {wrong[0]}: "):
        validity.check_column(column)


def test_ordinary_messages_are_found_valid_without_the_decoder() -> None:
    ordinary = [GOOD, b"\0Sw\xa1\1y", b"", Message(application_properties={"a": 1}, data=[b"x" * 300]).encode()]
    assert not validity.unsure(binary(*ordinary * 3)).any()


@pytest.mark.parametrize("second", [b"\0Sw\x40", b"\0Sv\x45", b"\0Ss\x45", b"\0St\xc1\1\0"])
def test_a_body_of_two_kinds_and_sections_out_of_order_are_refused(second: bytes) -> None:
    validity.check_column(binary(second, GOOD + GOOD))
    with pytest.raises(InvalidRequest, match="row 2: not a bare AMQP message: "):
        validity.check_column(binary(second, GOOD, GOOD + second))


@pytest.mark.parametrize("name", WHOLE)
def test_who_sends_a_whole_message_is_told_what_to_do_with_the_rest_of_it(name: str) -> None:
    with pytest.raises(InvalidRequest, match=f"'message' in row 1: .*{name} does not belong in a bare message: leave it out"):
        validity.check_column(binary(GOOD, WHOLE[name], b"\0"))


def test_rows_are_counted_over_the_chunks_of_a_long_column(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(validity, "CHUNK_ROWS", 4)
    validity.check_column(binary(*[GOOD] * 9))
    with pytest.raises(InvalidRequest, match="row 8: not a bare AMQP message"):
        validity.check_column(binary(*[GOOD] * 8, GOOD[:-1]))


def test_sections_are_as_many_as_by_amqp() -> None:
    """Messages that were stored with more, before there was a limit, are read as they were."""
    validity.check_column(binary(GOOD * MAX_SECTIONS))
    many = GOOD * (MAX_SECTIONS + 1)
    with pytest.raises(InvalidRequest, match=f"row 1: .* more than {MAX_SECTIONS} sections"):
        validity.check_column(binary(GOOD, many))
    assert reference.row(many, None, ["body"]) == {"body": b"x" * (MAX_SECTIONS + 1)}
