"""W3: the answer to a publish may be lost. Messages are sent once, and an error names an unknown result."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client
from penstock.connector.options import Options
from penstock.connector.sink import writer as sink
from penstock.connector.sink.writer import BatchWriter

from .relay import Relay

SCHEMA = StructType([StructField("body", BinaryType())])
REQUEST = b"stage.publish\x12"  # the type of the action, and the tag of the next field in the request
KEYS = [{}, {"txnAppId": "job", "txnVersion": "1"}]


def write(port: int, **options: str) -> None:
    """As Spark does: a task, then the driver's commit."""
    writer = BatchWriter(Options({"url": f"grpc://127.0.0.1:{port}", "queue": "q", **options}), SCHEMA, False)
    writer.commit([writer.write(iter([pa.record_batch({"body": pa.array([b"a", b"b"])})]))])


def available(broker: Broker) -> int:
    with Client(broker.url) as client:
        return int(client.call("queue.stat", queue="q")["available"])


def port_of(broker: Broker) -> int:
    return int(broker.url.rpartition(":")[2])


@pytest.mark.parametrize("key", KEYS)
@pytest.mark.parametrize("restarts", [False, True])
def test_a_publish_whose_answer_is_lost_is_asked_for_again(tmp_path: Path, key: dict[str, str], restarts: bool) -> None:
    with Broker(tmp_path / "data") as broker:
        broker.declare("q")

        def lost() -> None:
            if restarts:
                broker.kill()
                broker.start()

        with Relay(port_of(broker), REQUEST, lost=lost) as relay:
            write(relay.port, **key)
            assert relay.left == 0, "no answer was lost"
        assert available(broker) == 2


@pytest.mark.parametrize("key", KEYS)
def test_where_nobody_ever_answers_the_error_says_that_it_may_have_been_sent(
    tmp_path: Path, key: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sink, "PUBLISH_S", 0.5)
    with Broker(tmp_path / "data") as broker:
        broker.declare("q")
        with (
            Relay(port_of(broker), REQUEST, lose=10**6) as relay,
            pytest.raises(errors.PeerError, match="may have been sent"),
        ):
            write(relay.port, **key)
        assert available(broker) == 2
        if key:
            write(port_of(broker), **key)  # the error's remedy
            assert available(broker) == 2
