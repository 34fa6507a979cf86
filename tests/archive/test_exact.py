"""D8: rows of the archive have the content of every message in columns, and its exact bytes."""

from __future__ import annotations

import json
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.types import Described, Symbol
from penstock.broker_core.archive.table import layout as table
from penstock.broker_core.archive.write import rows as rows_of_recording
from penstock.broker_core.archive.write.rows import table_rows
from penstock.broker_core.engine import commands as c
from penstock.broker_core.messages import assembly

from ..messages import messages as m
from ..messages.amqp_values import STEADY
from .rig import Rig
from .tables import archived

OWN: dict[str, int | str] = {"queueId": 1, "pass": 1, "lineage": "l"}

#: Messages with one thing wrong, and messages of every type and shape.
damaged = m.bare.flatmap(lambda bare: st.sampled_from([bare[:-1], bare + b"\0", b"", b"\0Sp\x45" + bare, bare + bare]))


def in_the_table(messages: list[bytes], annotations: list[bytes | None], *, is_exact: bool = True) -> pa.RecordBatch:
    payload: dict[str, list[Any]] = {"message": messages}
    if any(section is not None for section in annotations):
        payload["encodedAnnotations"] = annotations
    stored = archived(payload, list(range(len(messages))), [0] * len(messages))
    return table_rows(stored, OWN, is_exact=is_exact)


@STEADY
@given(st.lists(st.tuples(st.one_of(m.bare, damaged), st.none() | m.annotations), min_size=1, max_size=6))
def test_a_message_of_any_types_is_the_same_byte_for_byte_and_its_columns_are_those_of_a_read(
    sent: list[tuple[bytes, bytes | None]],
) -> None:
    """D8: also a message that cannot be decoded, whose row has the reason."""
    messages, annotations = [bare for bare, _ in sent], [section for _, section in sent]
    rows = in_the_table(messages, annotations)
    assert table.exact_messages(rows).to_pylist() == messages
    payload: dict[str, list[Any]] = {"message": messages}
    if any(section is not None for section in annotations):
        payload["encodedAnnotations"] = annotations
    malformed: dict[int, str] = {}
    stored = archived(payload, list(range(len(sent))), [0] * len(sent))
    read = assembly.converted(table.READABLE, stored, "orders", malformed)
    assert rows.select(table.READABLE).to_pylist() == read.to_pylist()
    assert [error is not None for error in rows.column("error").to_pylist()] == [row in malformed for row in range(len(sent))]
    bodies = zip(rows.column("envelope").to_pylist(), rows.column("message").to_pylist(), strict=True)
    assert all((envelope is None) != (message is None) for envelope, message in bodies)


BODIES: list[tuple[Message, str | None, bytes | None]] = [
    (Message(data=[b"\0\xff"]), "data", b"\0\xff"),
    (Message(data=[b""]), "data", b""),
    (Message(data=[b"one", b"two"]), "data", b"onetwo"),
    (Message(value="grüße", has_value=True), "string", "grüße".encode()),
    (Message(value=b"\0\1", has_value=True), "binary", b"\0\1"),
    (Message(value=None, has_value=True), "json", b"null"),
    (Message(value=[1, {"a": True}], has_value=True), "json", b'[1, {"a": true}]'),
    (Message(value={"order": 7}, has_value=True), "json", b'{"order": 7}'),
    (Message(sequences=[[1, 2], ["x"]]), "json", b'[1, 2, "x"]'),
    (Message(value=Described(Symbol("t"), "x"), has_value=True), "json", None),
    (Message(), None, None),
]


@pytest.mark.parametrize(("message", "kind", "body"), BODIES)
def test_the_type_of_a_body(message: Message, kind: str | None, body: bytes | None) -> None:
    """D8. The body of most messages is stored once."""
    encoded = message.encode()
    rows = in_the_table([encoded], [None])
    (row,) = rows.to_pylist()
    assert row["bodyType"] == kind
    if body is not None and kind == "json":
        assert json.loads(row["body"]) == json.loads(body)
    elif kind != "json":
        assert row["body"] == body
    assert table.exact_messages(rows).to_pylist() == [encoded]
    is_divided = kind in ("data", "string", "binary") and encoded.endswith(row["body"])
    assert (row["message"] is None, row["envelope"] is None) == (is_divided, not is_divided)


def test_without_exact_bytes_only_a_message_that_cannot_be_decoded_keeps_them() -> None:
    """D8: `archive_message=columns`."""
    messages = [message.encode() for message, _, _ in BODIES]
    rows = in_the_table([*messages, b"\0Su\xa0\5short"[:-1]], [b"\0Sr\xc1\1\0"] * (len(messages) + 1), is_exact=False)
    assert rows.column("message").to_pylist()[:-1] == [None] * len(messages)
    assert rows.column("message")[len(messages)].as_py() is not None
    for name in ("envelope", "encodedAnnotations", "footer"):
        assert rows.column(name).null_count == rows.num_rows
    assert rows.column("body").to_pylist()[:2] == [b"\0\xff", b""]
    assert rows.column("error")[len(messages)].as_py().startswith("malformed: ")


def deep(levels: int) -> Any:
    return [deep(levels - 1)] if levels else "bottom"


LARGE: dict[str, Message] = {
    "3,000 properties": Message(application_properties={f"p{number}": number for number in range(3000)}, data=[b"x"]),
    "30 levels": Message(value=deep(30), has_value=True),
    "a body of 32 MiB": Message(data=[bytes(32 << 20)]),
    "a long text": Message(value="ü" * (1 << 20), has_value=True),
}


@pytest.mark.parametrize("message", LARGE.values(), ids=LARGE)
def test_large_and_deep_messages_are_recorded_and_read_again(rig: Rig, message: Message) -> None:
    """D8: between small ones, in their order."""
    encoded = [Message(data=[b"before"]).encode(), message.encode(), Message(data=[b"after"]).encode()]
    rig.send("q", *(pa.record_batch({"message": pa.array([octets], pa.binary())}) for octets in encoded))
    rig.settle("q", 3)
    rig.record()
    rows = rig.table().combine_chunks().to_batches()
    assert [octets for batch in rows for octets in table.exact_messages(batch).to_pylist()] == encoded
    (row,) = rig.table().slice(1, 1).to_pylist()
    assert len(row["properties"] or ()) == len(message.application_properties or ())
    assert row["error"] is None


def test_a_damaged_message_does_not_stop_the_archiver(rig: Rig) -> None:
    """D8: its row has its bytes and the reason."""
    messages = [Message(data=[b"good"]).encode(), b"\0Su\xa0\x09short", Message(data=[b"good"]).encode()]
    rig.send("q", pa.record_batch({"message": pa.array(messages, pa.binary())}))
    rig.settle("q", 3)
    rig.record()
    rows = rig.table().to_pylist()
    assert [row["body"] for row in rows] == [b"good", None, b"good"]
    assert rows[1]["message"] == messages[1]
    assert rows[1]["error"].startswith("malformed: ")
    assert rows[1]["bodyType"] is None


def test_the_archiver_decodes_with_bounded_memory(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    """D8: 320 MiB of messages, with two row groups and four tables in memory at most."""
    octets = pa.array([Message(data=[bytes(1 << 20)]).encode()] * 4, pa.binary())
    for _ in range(80):
        rig.send("q", pa.record_batch({"message": octets}))
    rig.settle("q", 320)
    before, allocated = pa.total_allocated_bytes(), list[int]()

    def measured(*arguments: Any, **options: Any) -> pa.RecordBatch:
        made = table_rows(*arguments, **options)
        allocated.append(pa.total_allocated_bytes() - before)
        return made

    monkeypatch.setattr(rows_of_recording, "table_rows", measured)
    rig.record()
    assert rig.table().num_rows == 320
    assert len(allocated) > 10
    assert max(allocated) < 2 * table.ROW_GROUP_BYTES + 4 * rows_of_recording.READ_BYTES


CHOICES = [("exact", None, True), ("columns", None, False), ("columns", "exact", True)]


@pytest.mark.parametrize(("setting", "option", "has_bytes"), CHOICES)
def test_the_queue_s_option_overrides_the_setting(make_rig: Any, setting: str, option: str | None, has_bytes: bool) -> None:
    """D8: `archiveMessage` and `archive_message`."""
    rig = make_rig(archive_message=setting)
    rig.service.submit(c.DeclareQueue("q", options={} if option is None else {"archiveMessage": option}))
    rig.send("q", pa.record_batch({"message": pa.array([Message(data=[b"x"]).encode()], pa.binary())}))
    rig.settle("q", 1)
    rig.record()
    (row,) = rig.table().to_pylist()
    assert row["body"] == b"x"
    assert (row["envelope"] is not None) is has_bytes


def test_a_new_table_describes_its_columns(rig: Rig) -> None:
    """D8: in the comments that Delta's readers show, people's columns first."""
    import deltalake

    rig.send("q", [b"x"])
    rig.settle("q", 1)
    rig.record()
    fields = deltalake.DeltaTable(rig.data / "archive" / "q").schema().fields
    assert all(field.metadata["comment"] for field in fields)
    assert [field.name for field in fields][-4:] == ["queueId", "pass", "lineage", "day"]
    assert [field.name for field in fields][:6] == [
        "sequenceNumber",
        "enqueuedTime",
        "messageId",
        "correlationId",
        "subject",
        "body",
    ]
