"""Arrow metadata that refers to one text at many places, or claims more than its bytes hold: the broker checks it."""

from __future__ import annotations

import struct

import grpc
import pyarrow as pa
import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.broker_core.engine.commands import DeclareQueue
from penstock.broker_core.flight_plane import arrow_ipc, protobuf

from .helpers import browse
from .octets import call, put
from .peers import Site
from .test_bad_clients import MIB, Sampled, address

TEXT = "x" * 500_000
SCHEMA, FIELDS, NAME, TYPE, NOTES, KEY, ZONE = 2, 1, 0, 3, 6, 0, 1  # places in a flatbuffer's tables


def pointed(schema: pa.Schema, way: tuple[int, ...], text: int) -> bytes:
    """A schema's metadata: below each field this way leads to a text, and all of these are the first field's."""
    data = bytearray(schema.serialize()[8:])
    fields = arrow_ipc._Table(memoryview(data), arrow_ipc._offset(data, 0)).table(SCHEMA).tables(FIELDS)
    holders = [field.table(way[0]) if way == (TYPE,) else field.tables(way[0])[0] if way else field for field in fields]
    places = [holder._field(text) for holder in holders]
    first = arrow_ipc._offset(data, places[0])
    for place in places[1:]:
        struct.pack_into("<I", data, place, first - place)
    return bytes(data)


def of_many(first: pa.Field, others: list[pa.Field]) -> pa.Schema:
    return pa.schema([first, *others])


def timed(number: int) -> pa.Field:
    return pa.field(f"f{number}", pa.timestamp("us", f"+{number // 60 % 24:02}:{number % 60:02}"))


MANY = range(1, 1000)
SHARED = {
    "names": pointed(of_many(pa.field(TEXT, pa.null()), [pa.field(f"f{number}", pa.null()) for number in MANY]), (), NAME),
    "zones": pointed(of_many(pa.field("f", pa.timestamp("us", TEXT)), [timed(number) for number in MANY]), (TYPE,), ZONE),
    "notes": pointed(
        of_many(
            pa.field("f", pa.null(), metadata={TEXT: ""}),
            [pa.field(f"f{number}", pa.null(), metadata={"": ""}) for number in MANY],
        ),
        (NOTES,),
        KEY,
    ),
}


@pytest.mark.parametrize("of", SHARED)
def test_a_text_counts_at_each_place_that_points_to_it(broker: Broker, queue: str, of: str) -> None:
    """An attacker's half megabyte would become half a gigabyte here, and 60 GiB with more fields."""
    with pytest.raises(grpc.RpcError, match="the metadata of an Arrow message has at most 1048576 bytes"):
        sent(broker, queue, SHARED[of])


@pytest.mark.parametrize(
    "schema",
    [
        pa.schema([pa.field(f"f{number}", pa.null()) for number in range(1025)]),
        pa.schema([pa.field("f", pa.struct([pa.field(f"f{number}", pa.null()) for number in range(1024)]))]),
        pa.schema([pa.field(f"f{half}", pa.struct([pa.field("f", pa.null())] * 512)) for half in range(2)]),
        pa.schema([pa.field("f", pa.null())], metadata={f"key{number}": "" for number in range(1025)}),
    ],
    ids=["fields", "children", "both", "notes"],
)
def test_fields_and_notes_have_a_limit(broker: Broker, queue: str, schema: pa.Schema) -> None:
    with pytest.raises(grpc.RpcError, match=r"at most 1024 fields, and as many notes"):
        sent(broker, queue, schema.serialize()[8:].to_pybytes())


def test_as_many_fields_as_may_be_are_read(broker: Broker, queue: str) -> None:
    schema = pa.schema([pa.field(f"f{number}", pa.null(), metadata={"k": "v"}) for number in range(1024)])
    assert sent(broker, queue, schema.serialize()[8:].to_pybytes()) == []


def sent(broker: Broker, queue: str, schema: bytes) -> list[bytes]:
    """Answers to a stream of this schema and no batch."""
    descriptor = put(queue, pa.record_batch({"body": [b""]}))[0]
    command = protobuf.parse("", descriptor)[protobuf.FLIGHT_DESCRIPTOR]
    message = protobuf.octets(protobuf.FLIGHT_DESCRIPTOR, bytes(command)) + protobuf.octets(protobuf.DATA_HEADER, schema)
    with grpc.insecure_channel("{}:{}".format(*address(broker))) as channel:
        return call(channel, "DoPut", message)


def test_small_dictionaries_cost_what_they_take(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Deltas of a few octets or of none, one after another: each is kept, and is more than its octets."""
    handlers = site.plane._listener._serve.__self__  # type: ignore[attr-defined]
    monkeypatch.setattr(handlers._dictionaries, "_left", 10 * arrow_ipc.DICTIONARY_COST)
    site.service.submit(DeclareQueue("q"))
    values = [pa.DictionaryArray.from_arrays(pa.array([0], pa.int8()), pa.array(["a", "b"][:rows])) for rows in (1, 2)]
    batches = [pa.record_batch({"body": [b""], "subject": value}) for value in values]
    schema, first, _, delta, batch = put("q", *batches, emit_dictionary_deltas=True)
    with grpc.insecure_channel(f"127.0.0.1:{site.plane.port}") as channel:
        assert len(call(channel, "DoPut", schema, first, *[delta] * 8, batch)) == 1
        with pytest.raises(grpc.RpcError, match="the dictionaries of all senders"):
            call(channel, "DoPut", schema, first, *[delta] * 10, batch)
        assert len(call(channel, "DoPut", schema, first, *[delta] * 8, batch)) == 1


def test_a_dictionary_of_nulls_takes_no_memory_for_what_it_says(broker: Broker, client: Client, queue: str) -> None:
    """Nulls have no bytes: a claim of 2^28 nulls is as small as a claim of 12,345."""
    nulls = pa.DictionaryArray.from_arrays(pa.array([0, 1], pa.int32()), pa.nulls(12_345))
    schema, dictionary, batch = put(queue, pa.record_batch({"body": [b"a", b"b"], "subject": nulls}))
    evil = dictionary.replace(struct.pack("<qq", 12_345, 12_345), struct.pack("<qq", 1 << 28, 1 << 28))
    assert evil != dictionary
    with Sampled(broker) as memory, grpc.insecure_channel("{}:{}".format(*address(broker))) as channel:
        call(channel, "DoPut", schema, evil, batch)
    assert memory.growth < 256 * MIB
    assert [row["subject"] for row in browse(client, queue, "subject")] == [None, None]
