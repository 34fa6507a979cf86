"""A stream by a connection string: from a peer that demands a token for each address, as Azure Service Bus does."""

from __future__ import annotations

from pathlib import Path

import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.broker_core.amqp.performatives import Properties
from penstock.connector.options import Options
from penstock.connector.schema import default_schema
from penstock.connector.stream.reader import StreamReader

from ..amqp_client.claims_peer import KEY, ClaimsPeer
from .helpers import INITIAL, bodies, next_batch


def reader(text: str, spool: Path) -> StreamReader:
    return StreamReader(Options({"connectionString": text, "queue": "orders", "spool": str(spool)}), default_schema())


def test_a_stream_reads_with_a_token(tmp_path: Path) -> None:
    with ClaimsPeer() as peer:
        peer.queues["orders"] += [
            Message(data=[b"%d" % number], properties=Properties(message_id=f"id-{number}")).encode() for number in range(10)
        ]
        made = reader(peer.connection_string, tmp_path / "spool")
        numbers: list[int] = []
        start = INITIAL
        while len(numbers) < 10:
            end = next_batch(made, start)
            numbers += bodies(made, start, end)
            start = end
        made.stop()
        assert numbers == list(range(10))
        assert list(peer.tokens) == ["orders"]
        assert KEY not in str(start)
        assert not [path for path in (tmp_path / "spool").rglob("*") if path.is_file() and KEY.encode() in path.read_bytes()]


def test_a_token_that_ends_while_a_batch_is_read_is_put_anew(tmp_path: Path) -> None:
    """The broker ends the link for it; messages that were not accepted come again, and once."""
    with ClaimsPeer() as peer:
        payloads = [
            Message(data=[b"%d" % number], properties=Properties(message_id=f"id-{number}")).encode() for number in range(20)
        ]
        peer.queues["orders"] += payloads[:10]
        peer.expire("orders", payloads)  # it sends the same messages again
        made = reader(peer.connection_string, tmp_path / "spool")
        numbers: list[int] = []
        end = INITIAL
        while len(numbers) < 20:
            start, end = end, next_batch(made, end)
            numbers += bodies(made, start, end)
        made.stop()
        assert numbers == list(range(20))
        assert (peer.ended, len(peer.tokens["orders"])) == (["orders"], 2)


def test_a_wrong_key_ends_the_stream_in_the_brokers_words(tmp_path: Path) -> None:
    with ClaimsPeer() as peer:
        made = reader(peer.connection_string.replace(KEY, "d3Jvbmc="), tmp_path / "spool")
        with pytest.raises(errors.Unauthenticated, match="InvalidSignature"):
            next_batch(made, INITIAL)
        made.stop()
