"""The field table: every composite's descriptor, fields, defaults and mandatory fields; frames compared with proton's."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker_core.amqp import performatives as p
from penstock.broker_core.amqp.composites import Composite, compose, decode_composite
from penstock.broker_core.amqp.encoder import encode
from penstock.broker_core.amqp.errors import DecodeError, EncodeError, FieldError
from penstock.broker_core.amqp.performatives import (
    MAX_CONDITION,
    MAX_DESCRIPTION,
    UNKNOWN,
    Accepted,
    Declared,
    Error,
    Modified,
    Received,
    Rejected,
    Released,
    TransactionalState,
    in_short,
)
from penstock.broker_core.amqp.types import Array, Described, Symbol, UInt, ULong

from .values import decode_all

ALL = [cls for cls in vars(p).values() if isinstance(cls, type) and issubclass(cls, Composite) and cls is not Composite]

# Code, symbol, and the fields in the order of the specification: M before mandatory ones, "=" and the default.
TEXT = """
10 amqp:open:list M container-id, hostname, max-frame-size=4294967295, channel-max=65535, idle-time-out, outgoing-locales,
   incoming-locales, offered-capabilities, desired-capabilities, properties

11 amqp:begin:list remote-channel, M next-outgoing-id, M incoming-window, M outgoing-window, handle-max=4294967295,
   offered-capabilities, desired-capabilities, properties

12 amqp:attach:list M name, M handle, M role, snd-settle-mode=2, rcv-settle-mode=0, source, target, unsettled,
   incomplete-unsettled=False, initial-delivery-count, max-message-size, offered-capabilities, desired-capabilities, properties

13 amqp:flow:list next-incoming-id, M incoming-window, M next-outgoing-id, M outgoing-window, handle, delivery-count, link-credit,
   available, drain=False, echo=False, properties

14 amqp:transfer:list M handle, delivery-id, delivery-tag, message-format, settled, more=False, rcv-settle-mode, state,
   resume=False, aborted=False, batchable=False

15 amqp:disposition:list M role, M first, last, settled=False, state, batchable=False

16 amqp:detach:list M handle, closed=False, error

17 amqp:end:list error

18 amqp:close:list error

1d amqp:error:list M condition, description, info

23 amqp:received:list M section-number, M section-offset

24 amqp:accepted:list

25 amqp:rejected:list error

26 amqp:released:list

27 amqp:modified:list delivery-failed, undeliverable-here, message-annotations

28 amqp:source:list address, durable=0, expiry-policy=session-end, timeout=0, dynamic=False, dynamic-node-properties,
   distribution-mode, filter, default-outcome, outcomes, capabilities

29 amqp:target:list address, durable=0, expiry-policy=session-end, timeout=0, dynamic=False, dynamic-node-properties, capabilities

2b amqp:delete-on-close:list

2c amqp:delete-on-no-links:list

2d amqp:delete-on-no-messages:list

2e amqp:delete-on-no-links-or-messages:list

30 amqp:coordinator:list capabilities

31 amqp:declare:list global-id

32 amqp:discharge:list M txn-id, fail

33 amqp:declared:list M txn-id

34 amqp:transactional-state:list M txn-id, outcome

40 amqp:sasl-mechanisms:list M sasl-server-mechanisms

41 amqp:sasl-init:list M mechanism, initial-response, hostname

42 amqp:sasl-challenge:list M challenge

43 amqp:sasl-response:list M response

44 amqp:sasl-outcome:list M code, additional-data

70 amqp:header:list durable=False, priority=4, ttl, first-acquirer=False, delivery-count=0

73 amqp:properties:list message-id, user-id, to, subject, reply-to, correlation-id, content-type, content-encoding,
   absolute-expiry-time, creation-time, group-id, group-sequence, reply-to-group-id
"""


def test_the_table_is_that_of_the_text() -> None:
    def row(cls: type[Composite]) -> str:
        fields = [
            ("M " if f.mandatory else "") + f.name + ("" if f.default in (None, ()) else f"={f.default}") for f in cls.FIELDS
        ]
        return f"{cls.CODE:02x} {cls.SYMBOL} {', '.join(fields)}".strip()

    expected = TEXT.strip().replace("\n   ", " ").split("\n\n")
    assert sorted(row(cls) for cls in ALL) == expected


SAMPLES = [
    p.Open(container_id="c", max_frame_size=512, outgoing_locales=("en-US",), properties={"product": "x"}),
    p.Begin(remote_channel=0, next_outgoing_id=2**32 - 1, incoming_window=1, outgoing_window=1),
    p.Attach(
        name="l", handle=0, role=p.SENDER,
        source=p.Source(address="q", default_outcome=p.Released(), filter={"f": Described(Symbol("s"), 1)}),
        target=p.Coordinator(capabilities=("amqp:local-transactions",)), unsettled={b"1": None, b"2": p.Accepted()},
        initial_delivery_count=0,
    ),
    p.Flow(incoming_window=0, next_outgoing_id=0, outgoing_window=0, handle=0, delivery_count=0, link_credit=0, drain=True),
    p.Transfer(handle=0, state=p.TransactionalState(txn_id=b"t", outcome=p.Accepted())),
    p.Disposition(role=p.RECEIVER, first=0, state=p.Modified(message_annotations={"x-opt": 1})),
    p.Disposition(role=p.SENDER, first=0, state=p.Declared(txn_id=b"t")),
    p.Transfer(handle=0, state=p.Received(section_number=0, section_offset=2**40)),
    p.Detach(handle=1, closed=True, error=p.Error(condition="amqp:not-found", description="d", info={"a": "b"})),
    p.SaslMechanisms(sasl_server_mechanisms=("PLAIN",)),
]  # fmt: skip


@pytest.mark.parametrize("sample", SAMPLES, ids=lambda s: s.SYMBOL)
def test_round_trip_by_code_and_by_symbol(sample: Composite) -> None:
    octets = sample.encode()
    role = "sasl-frame" if sample.CODE >= 0x40 else "frame"
    assert decode_composite(octets, 0, len(octets), role) == (sample, len(octets))
    described = decode_all(octets)
    by_symbol = encode(Described(Symbol(sample.SYMBOL), described.value))
    assert decode_composite(by_symbol, 0, len(by_symbol), role)[0] == sample


def test_settled_is_said_where_it_is_false() -> None:
    """2.7.6: a peer that asked for a settlement mode reads it, and some misread a missing field."""
    disposition = p.Disposition(role=p.RECEIVER, first=0)
    assert disposition.encode() == bytes((0, 0x53, 0x15, 0xC0, 5, 4, 0x41, 0x43, 0x40, 0x42))


def test_a_multiple_field_may_be_one_value_or_an_array() -> None:
    for value in (Symbol("PLAIN"), Array("symbol", (Symbol("PLAIN"),))):
        octets = encode(Described(ULong(0x40), [value]))
        assert decode_composite(octets, 0, len(octets), "sasl-frame")[0] == SAMPLES[-1]


@pytest.mark.parametrize(
    ("code", "values"),
    [
        (0x17, [None, None]),  # too many fields
        (0x16, []),  # without its handle
        (0x16, ["0"]),  # of another type
        (0x16, [0]),  # a long instead of a uint
        (0x16, [UInt(0), None, Described(ULong(0x24), [])]),  # an outcome instead of an error
        (0x12, ["n", UInt(0), True, UInt(0)]),
        (0x12, ["n", UInt(0), True, None, None, None, None, {None: None}]),
        (0x10, ["c", None, None, None, None, "en-US"]),
        (0x10, ["c", None, None, None, None, None, None, None, None, {"a": 1}]),
        (0x14, [UInt(0), None, None, None, None, None, None, Described(ULong(0x28), [])]),
        (0x40, [None]),
        (0x40, [Array("symbol", ())]),
        (0x44, [None]),
    ],
)
def test_fields_that_are_wrong(code: int, values: list[object]) -> None:
    with pytest.raises(FieldError) as caught:
        compose(Described(ULong(code), values))
    assert caught.value.condition == "amqp:invalid-field"


def test_a_described_type_that_we_do_not_know_is_kept() -> None:
    octets = p.Transfer(handle=0, state=Described(Symbol("com.example:state"), [1])).encode()
    transfer = decode_composite(octets, 0, len(octets), "frame")[0]
    assert isinstance(transfer, p.Transfer)
    assert transfer.state == Described(Symbol("com.example:state"), [1])


@pytest.mark.parametrize("octets", [b"\x00\x53\x24\x45", b"\x00\x53\x99\x45", b"\x45", b"\x00\x53\x41\x45"])
def test_what_is_no_frame_body(octets: bytes) -> None:
    with pytest.raises((DecodeError, FieldError)):
        decode_composite(octets, 0, len(octets), "frame")


@pytest.mark.parametrize(
    "sample",
    [
        p.Detach(handle=2**32),
        p.Detach(handle="x"),  # type: ignore[arg-type]
        p.Attach(name="n", handle=0, role=True, snd_settle_mode=3),
        p.Attach(name="n", handle=0, role=1),  # type: ignore[arg-type]
        p.SaslMechanisms(sasl_server_mechanisms=()),
        p.Error(condition="ü"),
        p.Properties(message_id=5),
    ],
)
def test_values_a_field_cannot_hold(sample: Composite) -> None:
    with pytest.raises(EncodeError):
        sample.encode()


WHY, TXN = Error(condition="x:y", description="why"), b"t"
WIDE = {Symbol("k"): Array("symbol", (Symbol("a"),) * 1000)}


@pytest.mark.parametrize(
    ("state", "shortened"),
    [
        (
            Rejected(error=Error(condition="x:y", description="why", info=WIDE)),
            Rejected(error=Error(condition="x:y", description="why")),
        ),
        (Rejected(error=Error(condition="c" * 999)), Rejected(error=Error(condition="c" * MAX_CONDITION))),
        (
            Rejected(error=Error(condition="c", description="d" * 999)),
            Rejected(error=Error(condition="c", description="d" * MAX_DESCRIPTION)),
        ),
        (Modified(undeliverable_here=True, message_annotations=WIDE), Modified(undeliverable_here=True)),
        (Described(Symbol("x:y"), WIDE), UNKNOWN),
        (
            TransactionalState(txn_id=TXN, outcome=Modified(delivery_failed=True, message_annotations=WIDE)),
            TransactionalState(txn_id=TXN, outcome=Modified(delivery_failed=True)),
        ),
        (
            TransactionalState(txn_id=TXN, outcome=Described(Symbol("x:y"), WIDE)),
            TransactionalState(txn_id=TXN, outcome=UNKNOWN),
        ),
    ],
)
def test_of_a_state_that_was_told_little_is_kept(state: Any, shortened: Any) -> None:
    assert in_short(state) == shortened
    assert in_short(shortened) is shortened


@pytest.mark.parametrize(
    "state",
    [
        None,
        Accepted(),
        Released(),
        Rejected(),
        Modified(delivery_failed=True),
        Received(section_number=1, section_offset=2),
        Declared(txn_id=TXN),
        TransactionalState(txn_id=TXN, outcome=Accepted()),
        TransactionalState(txn_id=TXN),
    ],
)
def test_a_state_that_carries_little_is_kept_as_it_is(state: Any) -> None:
    assert in_short(state) is state
