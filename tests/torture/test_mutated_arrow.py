"""Arbitrary bytes as a record batch are refused by name, or stored and read back unchanged.

PENSTOCK_TORTURE_SEED and PENSTOCK_TORTURE_S (seconds) run more rounds: see `./dev torture`.
"""

from __future__ import annotations

import os
import struct
import time
from random import Random

import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.flight_plane import arrow_ipc
from penstock.broker_core.messages import batch_checks
from penstock.broker_core.messages.columns import STRING_MAP, stored_form, unpack
from penstock.broker_core.messages.payloads import stored_sizes

SEED = int(os.environ.get("PENSTOCK_TORTURE_SEED", "20261122"))
SECONDS = float(os.environ.get("PENSTOCK_TORTURE_S", "0"))
INPUTS = 3000  # without SECONDS

TEXTS = ["", "a", "ä€𓅃", "x" * 300, None]


def batches() -> list[pa.RecordBatch]:
    """Build a batch of each accepted form of columns."""
    body = [b"", b"x", b"y" * 1000, b"\0\xff", b"z"]
    maps = pa.array([[("a", "1")], [], None, [("b", None), ("c", "x")], [("d", "")]], STRING_MAP)
    moment = pa.array([0, 1, None, -1, 2**52], pa.timestamp("us", tz="UTC"))
    return [
        pa.record_batch({"body": pa.array(body)}),
        pa.record_batch({"body": pa.array(body, pa.large_binary()), "messageId": pa.array(TEXTS, pa.large_string())}),
        pa.record_batch({"body": pa.array(body, pa.binary_view()), "subject": pa.array(TEXTS, pa.string_view())}),
        pa.record_batch({"body": pa.array(body).dictionary_encode(), "groupId": pa.array(TEXTS).dictionary_encode()}),
        pa.record_batch({"body": pa.array(["a", "b", "c", "d", "ä"]), "properties": maps, "creationTime": moment}),
        pa.record_batch(
            {"body": pa.array(body), "priority": pa.array([0, 9, None, 4, 5], pa.int64()), "ttl": [1, 2, 3, None, 5]}
        ),
        pa.record_batch({"body": pa.array(body), "durable": [True, False, None, True, True], "correlationId": pa.nulls(5)}),
        pa.record_batch({"body": pa.array(body[::-1] * 3).slice(3, 9)}),
    ]


def written(batch: pa.RecordBatch, random: Random) -> bytes:
    sink = pa.BufferOutputStream()
    compression = random.choice([None, None, None, "lz4", "zstd"])
    with pa.ipc.new_stream(sink, batch.schema, options=pa.ipc.IpcWriteOptions(compression=compression)) as writer:
        writer.write_batch(batch)
    octets: bytes = sink.getvalue().to_pybytes()
    return octets


def mutated(octets: bytes, random: Random) -> bytes:
    data = bytearray(octets)
    for _ in range(random.choice([1, 1, 2, 8])):
        at = random.randrange(len(data))
        kind = random.randrange(5)
        if kind == 0:
            data[at] ^= 1 << random.randrange(8)
        elif kind == 1:
            data[at] = random.choice([0, 1, 0x7F, 0x80, 0xFF])
        elif kind == 2:  # a length, an offset or a count
            at -= at % 4
            data[at : at + 4] = random.choice([0, 1, 5, 2**31 - 1, 2**32 - 1, 2**16]).to_bytes(4, "little")
        elif kind == 3:
            stop = min(len(data), at + random.choice([1, 8, 64]))
            data[at:stop] = random.randbytes(stop - at)
        else:
            start = random.randrange(len(data))
            piece = data[start : start + 8]
            data[at : at + len(piece)] = piece
    return bytes(data)


def look(octets: bytes) -> str:
    """Process a batch like the Flight server, and return one of three results. Any other result is a defect."""
    try:
        for message in pa.ipc.MessageReader.open_stream(octets):
            arrow_ipc._inspect(memoryview(message.metadata))
    except errors.PenstockError:
        return "refused"
    except (pa.ArrowException, OSError, ValueError, IndexError, struct.error):  # as in `BatchReader._measure`
        return "not Arrow"
    try:
        (batch,) = list(pa.ipc.open_stream(octets))
    except (pa.ArrowException, OSError, ValueError, UnicodeDecodeError):
        return "not Arrow"
    if batch.get_total_buffer_size() > 1 << 24:
        return "refused"
    try:
        checked = batch_checks.validate(batch)
        sizes = stored_sizes(checked)
        mask, stored = stored_form(checked)
    except errors.PenstockError:
        return "refused"
    restored = unpack(mask, stored.serialize())
    assert restored.num_rows == checked.num_rows
    for name in restored.schema.names:
        assert restored.column(name).equals(checked.column(name)), name
    assert isinstance(sizes, int) or len(sizes) == checked.num_rows
    return "stored"


@pytest.mark.timeout(86_400)
def test_mutated_record_batches_are_refused_or_stored_as_they_came() -> None:
    seed, count, became = SEED, 0, {"not Arrow": 0, "refused": 0, "stored": 0}
    end = time.monotonic() + SECONDS
    while count < INPUTS or time.monotonic() < end:
        random = Random(seed + count)
        octets = mutated(written(random.choice(batches()), random), random)
        try:
            became[look(octets)] += 1
        except Exception:
            print(f"seed {seed + count}")
            raise
        count += 1
    print(f"seeds {seed} to {seed + count - 1}: {became}")
    assert min(became.values()) > 0
