"""S11: python-qpid-proton plays the broker, well or badly: each message once, and each refusal with its text."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.connector.foreign import consumer, intake
from penstock.connector.options import Options
from penstock.connector.schema import default_schema
from penstock.connector.stream.reader import StreamReader

from .helpers import drained
from .test_sink import rows, written

pytest.importorskip("proton")

from .proton_peer import NEVER, ONCE, ProtonPeer  # after the check

COUNT = 50


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "DRAIN_S", 0.3)
    monkeypatch.setattr(intake, "SILENCE_S", 0.3)
    monkeypatch.setattr(consumer, "EMPTY_S", 0.2)


@pytest.mark.parametrize("settle", ["spooled", "committed"])
@pytest.mark.parametrize("plays", ["", *ONCE, *NEVER])
def test_each_message_comes_once_whatever_the_broker_does(tmp_path: Path, plays: str, settle: str) -> None:
    payloads = [Message(data=[b"%d" % n], properties=Properties(message_id=f"id-{n}")).encode() for n in range(COUNT)]
    with ProtonPeer(payloads, plays) as peer:
        options = {"url": peer.url, "queue": "q", "spool": str(tmp_path / "spool"), "settle": settle}
        reader = StreamReader(Options(options), default_schema())
        numbers, end = drained(reader)
        reader.commit(end)
        reader.stop()
    assert sorted(numbers) == list(range(COUNT))
    assert sorted(peer.accepted) == sorted(payloads)


def batch() -> pa.RecordBatch:
    return rows(body=[b"%d" % n for n in range(3)])


def test_rows_are_sent_and_confirmed() -> None:
    with ProtonPeer([]) as peer:
        assert written(batch(), url=peer.url, queue="q", sendTimeout="10s") == 3
        assert len(peer.received) == 3


@pytest.mark.parametrize(
    ("plays", "kind", "says"),
    [
        ("reject", errors.InvalidRequest, ProtonPeer.words),
        ("release", errors.NotDelivered, "released"),
        ("credit", errors.PeerError, "gives no credit"),
    ],
)
def test_what_the_broker_does_not_take_fails_the_task(plays: str, kind: type[errors.PenstockError], says: str) -> None:
    with ProtonPeer([], plays) as peer, pytest.raises(kind, match=says):
        written(batch(), url=peer.url, queue="q", sendTimeout="1s")
