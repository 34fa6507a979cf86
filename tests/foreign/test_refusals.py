"""S11: brokers that refuse, at a start and later, and brokers that end links again and again."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import Condition, Message, SaslServer, events
from penstock.broker_core.amqp.performatives import Error, Properties
from penstock.connector.foreign import intake
from penstock.connector.stream.reader import StreamReader

from ..amqp_client.peer import Peer
from ..waiting import until
from .helpers import INITIAL, LIMIT, bodies, drained, next_batch, reader_of


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "DRAIN_S", 0.3)
    monkeypatch.setattr(intake, "SILENCE_S", 0.3)


def test_a_query_that_starts_again_is_patient_with_a_broker_that_refuses_its_login(
    peers: Callable[..., Peer], tmp_path: Path
) -> None:
    """A broker that was started a moment ago may not have read its users yet. At the first start the login is wrong, rather."""
    logins: list[str] = []

    def refuses() -> SaslServer:
        return SaslServer([logins.pop() if logins else "ANONYMOUS"])

    peer = peers(sasl=refuses)
    peer.queues["q"] = [Message(data=[b"0"]).encode()]
    logins += ["PLAIN"] * 2
    with pytest.raises(errors.Unauthenticated):
        reader_of(peer, tmp_path).latestOffset(INITIAL, LIMIT)
    first = reader_of(peer, tmp_path)
    numbers, end = drained(first)
    first.stop()
    logins += ["PLAIN"] * 3
    second = reader_of(peer, tmp_path)
    assert second.latestOffset(end, LIMIT) == end
    assert (numbers, logins) == ([0], [])
    second.stop()


@pytest.mark.parametrize("condition", ["amqp:not-allowed", "amqp:precondition-failed", "amqp:not-implemented"])
def test_a_query_that_starts_again_is_patient_with_a_broker_that_starts_whatever_it_refuses_with(
    peers: Callable[..., Peer], tmp_path: Path, condition: str
) -> None:
    """A wait may change any of its refusals. At the first start the url or the queue is wrong, rather."""
    refusals: list[str] = []

    def refuse(_: Peer, __: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached) and refusals:
            event.link.refuse(refusals.pop(), "still starting")
            return True
        return False

    peer = peers(hook=refuse)
    peer.queues["q"] = [Message(data=[b"0"]).encode()]
    refusals += [condition]
    with pytest.raises(errors.InvalidRequest, match="still starting"):
        reader_of(peer, tmp_path).latestOffset(INITIAL, LIMIT)
    first = reader_of(peer, tmp_path)
    numbers, end = drained(first)
    first.stop()
    refusals += [condition] * 2
    second = reader_of(peer, tmp_path)
    assert second.latestOffset(end, LIMIT) == end
    assert (numbers, refusals) == ([0], [])
    second.stop()


def test_what_is_in_the_spool_is_read_while_the_broker_refuses(peers: Callable[..., Peer], tmp_path: Path) -> None:
    refused: list[amqp.Connection] = []
    refuses = False

    def refuse(_: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Opened) and refuses:
            refused.append(machine)
            machine.open()
            machine.close(Error(condition="amqp:not-allowed", description="still starting"))
            return True
        return False

    peer = peers(hook=refuse)
    peer.queues["q"] = [Message(data=[b"0"]).encode()]
    first = reader_of(peer, tmp_path)
    end = next_batch(first, INITIAL)
    first.stop()
    refuses = True
    second = reader_of(peer, tmp_path)
    assert second.latestOffset(INITIAL, LIMIT) == end
    assert bodies(second, INITIAL, end) == [0]
    assert refused
    second.stop()


def test_a_link_is_taken_up_again_whatever_error_the_broker_ends_it_with(
    peers: Callable[..., Peer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every condition of AMQP 1.0, one of the broker's own, and no condition."""
    monkeypatch.setattr(intake, "FIRST_PAUSE_S", 0.01)
    monkeypatch.setattr(intake, "LONGEST_PAUSE_S", 0.01)
    known = [value for name, value in vars(Condition).items() if name.isupper()]
    left: list[str | None] = [*known, "vendor:because", None]
    count, ended = len(left), list[amqp.Connection]()

    def end_each(_: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if not isinstance(event, events.Flowed) or event.link is None:
            return False
        if any(machine is member for member in ended):
            return True
        if left:
            ended.append(machine)
            condition = left.pop()
            event.link.detach(closed=True, error=None if condition is None else Error(condition=condition, description="because"))
            return True
        return False

    peer = peers(hook=end_each)
    peer.queues["q"] = [Message(data=[b"%d" % n]).encode() for n in range(5)]
    reader = reader_of(peer, tmp_path)
    assert bodies(reader, INITIAL, next_batch(reader, INITIAL)) == list(range(5))
    assert reader.reportLatestOffset()["queues"]["q"]["lostConnections"] == count > 20
    reader.stop()


def ends_links(peers: Callable[..., Peer], condition: str) -> tuple[list[float], Peer]:
    """Return a peer that ends each link behind a message, once its queue `q` is empty; and when it has."""
    ended: list[float] = []

    def end(peer: Peer, _: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Flowed) and isinstance(event.link, amqp.Sender) and peer.outcomes:
            ended.append(time.monotonic())
            peer.queues["q"] = [Message(data=[b"again"]).encode()]
            peer._send(event.link)
            event.link.detach(closed=True, error=Error(condition=condition, description="because"))
            return True
        return False

    peer = peers(hook=end)
    peer.queues["q"] = [Message(data=[b"0"]).encode()]
    return ended, peer


def test_a_broker_that_ends_each_link_is_tried_after_longer_and_longer_pauses(
    peers: Callable[..., Peer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it answers each attach, and sends messages that cannot be accepted any more."""
    monkeypatch.setattr(intake, "FIRST_PAUSE_S", 0.02)
    ended, peer = ends_links(peers, "amqp:internal-error")
    reader = reader_of(peer, tmp_path)
    next_batch(reader, INITIAL)
    until(lambda: peer.outcomes, "the first message is accepted")
    peer.cut()
    until(lambda: len(ended) >= 6, "its links are taken up again")
    reader.stop()
    assert ended[5] - ended[0] > 0.02 * (2 + 4 + 8 + 16 + 32)


def test_a_broker_that_answers_each_attach_and_then_refuses_ends_the_query_with_its_words(
    peers: Callable[..., Peer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "RECONNECT_S", 1.0)
    _, peer = ends_links(peers, "amqp:unauthorized-access")
    reader = reader_of(peer, tmp_path)
    end = next_batch(reader, INITIAL)
    until(lambda: peer.outcomes, "the first message is accepted")
    peer.cut()
    with pytest.raises(errors.NotAllowed, match="because"):
        read_on(reader, end)
    reader.stop()


def read_on(reader: StreamReader, end: dict[str, Any]) -> None:
    """Ask for more: a message that came before the end of its link may be a batch."""
    for _ in range(100):
        end = next_batch(reader, end)


def test_a_link_that_is_lost_behind_what_was_accepted_is_taken_up_again_soon(
    peers: Callable[..., Peer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "FIRST_PAUSE_S", 0.02)
    peer = peers()
    reader = reader_of(peer, tmp_path)
    end = INITIAL
    for number in range(10):  # 0.02 × 2**10 are 20 seconds
        peer.queues["q"] = [Message(data=[b"%d" % number], properties=Properties(message_id=f"{number}")).encode()]
        peer.cut()
        start, end = end, next_batch(reader, end)
        assert bodies(reader, start, end) == [number]
        until(lambda: len(peer.outcomes) > number, "it is accepted")  # noqa: B023
    pause = reader._consumer(INITIAL)._intake._pause  # type: ignore[union-attr]
    assert pause <= 0.04
    reader.stop()
