"""S11: brokers that send damage, ignore a drain, end links or know no selectors; and one that is killed."""

from __future__ import annotations

import ssl
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import Accepted, Message, events
from penstock.broker_core.amqp.performatives import Error, Header
from penstock.broker_core.client.amqp import transport
from penstock.broker_core.client.amqp.dial import MAX_MESSAGE_OCTETS
from penstock.connector.brokers import consumer as brokers
from penstock.connector.brokers.consumer import BrokersConsumer
from penstock.connector.foreign import intake
from penstock.connector.foreign.spool_files import SpoolFiles
from penstock.connector.options import LARGEST
from penstock.connector.stream.reader import StreamReader

from ..amqp_client.certificates import Authority
from ..amqp_client.peer import Peer
from ..waiting import until
from .helpers import INITIAL, LIMIT, Queue, bodies, drained, next_batch, reader_of, rows


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(intake, "DRAIN_S", 0.3)
    monkeypatch.setattr(intake, "SILENCE_S", 0.3)


def counting(peers: Callable[..., Peer]) -> tuple[list[Any], Peer]:
    """Return a peer, and the links that it is asked to drain once something was accepted."""
    asked: list[Any] = []

    def count(peer: Peer, _: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Flowed) and event.flow.drain and peer.outcomes:
            asked.append(event.link)
        return False

    return asked, peers(hook=count)


def test_a_stream_takes_messages_as_large_as_the_client_does() -> None:
    assert LARGEST == MAX_MESSAGE_OCTETS


def test_a_message_beyond_the_limit_ends_the_query_and_a_higher_limit_takes_it(
    peers: Callable[..., Peer], tmp_path: Path
) -> None:
    def heedless(peer: Peer, _: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached):
            event.attach.max_message_size = None
        return False

    peer = peers(hook=heedless)
    large = Message(data=[b"x" * 200_000]).encode()
    peer.queues["q"] = [large]
    reader = reader_of(peer, tmp_path, maxMessageBytes="100k")
    reader.prepareForTriggerAvailableNow()
    with pytest.raises(errors.ResourceLimit, match=r"from 'q', where this client takes 102,400 .* the option maxMessageBytes"):
        next_batch(reader, INITIAL)
    reader.stop()
    peer.queues["q"] = [large]
    again = reader_of(peer, tmp_path, maxMessageBytes="1m")
    again.prepareForTriggerAvailableNow()
    assert [len(row["body"]) for row in rows(again, INITIAL, next_batch(again, INITIAL))] == [200_000]


def test_the_end_of_a_large_message_waits_for_nothing_else_inside_of_tls(
    peers: Callable[..., Peer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A read may end amid a record of TLS, of 16 KiB: the socket shows nothing of the rest."""
    monkeypatch.setattr(transport, "READ_OCTETS", 1000)
    authority = Authority(tmp_path)
    served = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    served.load_cert_chain(*authority.issue("server"))
    peer = peers(tls=served)
    peer.queues["q"] = [Message(data=[b"x" * 15_000]).encode()]
    reader = reader_of(peer, tmp_path, caFile=authority.ca_file)
    begun = time.monotonic()
    assert [len(row["body"]) for row in rows(reader, INITIAL, next_batch(reader, INITIAL))] == [15_000]
    assert time.monotonic() - begun < 5.0  # else each read begins after a second
    reader.stop()


def test_messages_that_cannot_be_decoded_are_set_aside_and_counted(peers: Callable[..., Peer], tmp_path: Path) -> None:
    peer = peers()
    good = [Message(data=[b"%d" % n], header=Header(delivery_count=n, durable=True)).encode() for n in range(4)]
    peer.queues["q"] = [good[0], b"\x00\x00junk", good[1], b"", good[2], good[3][:-1]]
    reader = reader_of(peer, tmp_path)
    reader.prepareForTriggerAvailableNow()
    end = next_batch(reader, INITIAL)
    records = rows(reader, INITIAL, end)
    assert [(row["body"], row["deliveryCount"]) for row in records] == [(b"0", 0), (b"1", 1), (None, 0), (b"2", 2)]
    assert [row["durable"] for row in records] == [True, True, None, True]
    reader.commit(end)
    assert reader.reportLatestOffset()["queues"]["q"]["setAside"] == 2
    assert [path.name for path in (tmp_path / "spool" / "aside" / "batch-1").iterdir()] == ["0-2.arrow"]
    reader.stop()
    assert len([state for _, state in peer.outcomes if isinstance(state, Accepted)]) == 6


def test_what_is_set_aside_is_counted_once_whatever_else_lies_there(peers: Callable[..., Peer], tmp_path: Path) -> None:
    """A stranger's file, a file of a killed task, and a planner that ends before Spark's commit."""
    peer = peers()
    peer.queues["q"] = [b"\x00\x00junk", Message(data=[b"1"]).encode()]
    first = reader_of(peer, tmp_path)
    end = next_batch(first, INITIAL)
    assert bodies(first, INITIAL, end) == [1]
    first.stop()
    folder = tmp_path / "spool" / "aside"
    part = folder / "batch-1" / "0-1.arrow.0badcafe.part"
    for path in (part, folder / ".DS_Store", folder / "batch-1" / "x-1.arrow", folder / "notes" / "mine.part"):
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(b"")
    peer.queues["q"] = [b"\x00\x00junk", b"\x00\x00more", Message(data=[b"2"]).encode()]
    second = reader_of(peer, tmp_path)
    assert second.latestOffset(INITIAL, None) == end
    assert not part.exists()
    assert (folder / "notes" / "mine.part").exists()
    counts = [second.reportLatestOffset()["queues"]["q"]["setAside"]]
    last = next_batch(second, end)
    counts.append(second.reportLatestOffset()["queues"]["q"]["setAside"])
    assert bodies(second, end, last) == [2]
    second.commit(last)
    counts.append(second.reportLatestOffset()["queues"]["q"]["setAside"])
    second.stop()
    third = reader_of(peer, tmp_path)
    third.latestOffset(last, None)
    counts.append(third.reportLatestOffset()["queues"]["q"]["setAside"])
    third.stop()
    assert counts == [0, 1, 3, 3]


def test_a_commit_looks_at_no_other_batch_that_was_set_aside(
    peers: Callable[..., Peer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    peer = peers()
    peer.queues["q"] = [b"\x00\x00junk", b"\x00\x00more"]
    reader = reader_of(peer, tmp_path, maxMessagesPerTrigger="1")
    end = next_batch(reader, INITIAL)
    bodies(reader, INITIAL, end)
    reader.commit(end)
    looked: list[str] = []
    names = SpoolFiles.names

    def listed(store: SpoolFiles, under: str = "", *, deep: bool = False) -> list[str]:
        looked.append(under)
        assert not deep
        return names(store, under)

    monkeypatch.setattr(SpoolFiles, "names", listed)
    last = next_batch(reader, end)
    bodies(reader, end, last)
    reader.commit(last)
    reader.stop()
    assert looked == ["aside/batch-2"]


def test_what_is_set_aside_is_the_same_whatever_tasks_the_batch_is_cut_into(peers: Callable[..., Peer], tmp_path: Path) -> None:
    """The driver is killed in the batch, and the query starts again with another option."""
    peer = peers()
    good = [Message(data=[b"%d" % n]).encode() for n in range(5)]
    peer.queues["q"] = [good[0], b"\x00\x00junk", *good[1:4], b"\x00\x00more", good[4], b"\x00\x00last"]
    first = reader_of(peer, tmp_path)
    end = next_batch(first, INITIAL)
    folder = tmp_path / "spool" / "aside" / "batch-1"
    first.stop()
    files = []
    for least in ("1", "4", "8"):
        reader = reader_of(peer, tmp_path, minPartitions=least)
        assert bodies(reader, INITIAL, end) == list(range(5))
        (file,) = folder.iterdir()
        files.append((len(reader.partitions(INITIAL, end)), file.name, file.read_bytes()))
        reader.stop()
    assert files == [(tasks, "0-3.arrow", files[0][2]) for tasks in (1, 4, 8)]


def test_a_message_for_which_there_is_no_memory_fails_the_query(peers: Callable[..., Peer], tmp_path: Path) -> None:
    """The query that runs, and the run that ends: neither waits forever after the receiving thread has ended."""
    large = Message(data=[bytes(100 << 20)]).encode()

    def fill(peer: Peer, _: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached):
            peer.queues.update(warm=[Message(data=[b"0"]).encode()], large=[large])
        return False

    peer = peers(hook=fill, keep=False)
    command = [sys.executable, str(Path(__file__).with_name("starved.py")), peer.url, str(tmp_path), "80"]
    done = subprocess.run(command, check=True, capture_output=True, text=True, timeout=60)
    assert done.stdout.split() == ["nothing", "MemoryError", "MemoryError"]


def test_a_drain_that_is_never_answered_ends_a_run(peers: Callable[..., Peer], tmp_path: Path) -> None:
    peer = peers()
    peer.drains = False
    peer.queues["q"] = [Message(data=[b"%d" % n]).encode() for n in range(50)]
    reader = reader_of(peer, tmp_path)
    assert drained(reader)[0] == list(range(50))
    reader.stop()


def test_a_drain_that_is_not_answered_while_spark_works_is_no_answer(peers: Callable[..., Peer], tmp_path: Path) -> None:
    """A slow broker is asked again, and waited for, before a run ends."""
    asked, peer = counting(peers)
    peer.drains = False
    peer.queues["q"] = [Message(data=[b"%d" % n]).encode() for n in range(50)]
    reader = reader_of(peer, tmp_path)
    assert drained(reader)[0] == list(range(50))
    reader.stop()
    assert len(asked) >= 2


def test_a_drain_that_one_link_does_not_answer_holds_up_no_other(
    peers: Callable[..., Peer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(intake, "DRAIN_S", 600.0)
    links: dict[str, Any] = {}

    def silent(peer: Peer, _: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Flowed) and isinstance(event.link, amqp.Sender):
            address = getattr(event.link.source, "address", "")
            links[address] = event.link
            if event.flow.drain and peer.outcomes and peer.drains:
                peer.drains = False
                neighbour = "r" if address == "q" else "q"
                peer.queues[neighbour].append(Message(data=[b"1"]).encode())
                peer._send(links[neighbour])
        return False

    peer = peers(hook=silent)
    peer.queues["q"] = [Message(data=[b"0"]).encode()]
    reader = reader_of(peer, tmp_path, queue="q,r")
    reader.prepareForTriggerAvailableNow()
    next_batch(reader, INITIAL)
    until(
        lambda: sum(counts["received"] for counts in reader.reportLatestOffset()["queues"].values()) == 2,
        "something comes over the other link while one does not answer",
    )
    reader.stop()


def test_a_run_asks_whether_that_was_all_while_spark_works(peers: Callable[..., Peer], tmp_path: Path) -> None:
    asked, peer = counting(peers)
    peer.queues["q"] = [Message(data=[b"0"]).encode()]
    reader = reader_of(peer, tmp_path)
    reader.prepareForTriggerAvailableNow()
    end = next_batch(reader, INITIAL)
    until(lambda: asked, "it is asked before Spark's next trigger")
    assert drained(reader, end) == ([], end)
    reader.stop()
    assert len(asked) == 1, "an answered broker is asked again"


def sends_at_a_drain(_: Peer, __: amqp.Connection, event: events.Event) -> bool:
    """Send nothing before it is asked for all there is."""
    return isinstance(event, events.Flowed) and event.link is not None and not event.flow.drain


def test_a_trigger_that_is_the_only_one_asks_for_all_there_is(peers: Callable[..., Peer], tmp_path: Path) -> None:
    peer = peers(hook=sends_at_a_drain)
    peer.queues["q"] = [Message(data=[b"7"]).encode()]
    reader = reader_of(peer, tmp_path)
    assert bodies(reader, INITIAL, reader.latestOffset(INITIAL, ReadAllAvailable())) == [7]
    reader.stop()


def two_of(peers: Callable[..., Peer], tmp_path: Path, **how: Any) -> tuple[list[Peer], StreamReader]:
    """Return two brokers with empty queues, and a reader that continues without one that is away."""
    both = [peers(**how), peers(**how)]
    urls, spools = ",".join(peer.url for peer in both), f"{tmp_path / 'one'},{tmp_path / 'other'}"
    return both, reader_of(both[0], tmp_path, url=urls, spool=spools, failOnBrokerLoss="false")


def test_a_query_that_goes_on_asks_none_of_its_brokers_whether_that_was_all(
    peers: Callable[..., Peer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The answer may take seconds. They would delay all brokers, or the broker would count as away."""
    monkeypatch.setattr(brokers, "HOLD_UP_S", 30.0)
    both, reader = two_of(peers, tmp_path)
    for _ in range(3):
        assert reader.latestOffset(INITIAL, LIMIT) == INITIAL
    reader.stop()
    granted = [event.flow.drain for peer in both for event in peer.seen if isinstance(event, events.Flowed)]
    assert granted
    assert not any(granted)


def test_a_trigger_that_is_the_only_one_waits_for_each_broker_that_is_there(
    peers: Callable[..., Peer], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also with `failOnBrokerLoss=false`."""
    monkeypatch.setattr(brokers, "HOLD_UP_S", 30.0)
    both, reader = two_of(peers, tmp_path, hook=sends_at_a_drain)
    assert reader.latestOffset(INITIAL, LIMIT) == INITIAL  # both are connected to
    asked = reader._kept
    assert isinstance(asked, BrokersConsumer)
    until(lambda: all(peer._last is not None and peer._last.done() for peer in asked._members), "each broker has been asked")
    monkeypatch.setattr(brokers, "HOLD_UP_S", 0.01)
    for number, peer in enumerate(both):
        peer.queues["q"] = [Message(data=[b"%d" % number]).encode()]
    assert sorted(bodies(reader, INITIAL, reader.latestOffset(INITIAL, ReadAllAvailable()))) == [0, 1]
    reader.stop()


def test_a_broker_that_breaks_off_in_a_drain_is_not_asked_again(peers: Callable[..., Peer], tmp_path: Path) -> None:
    """RabbitMQ 3.10 ends the session then. All comes, and a run ends."""
    asked: list[Any] = []

    def break_off(peer: Peer, _: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Flowed) and event.flow.drain and len(peer.outcomes) == 50:
            asked.append(event.link)
            event.session.end(Error(condition="amqp:internal-error", description="function_clause"))
            return True
        return False

    peer = peers(hook=break_off)
    peer.queues["q"] = [Message(data=[b"%d" % n]).encode() for n in range(50)]
    reader = reader_of(peer, tmp_path)
    assert drained(reader)[0] == list(range(50))
    reader.stop()
    assert len(asked) == intake.MOST_BREAKS


def test_a_selector_that_the_broker_does_not_confirm_is_refused(peers: Callable[..., Peer], tmp_path: Path) -> None:
    def without_filters(_: Peer, __: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached):
            event.link.attach(source=amqp.Source(address="q"), target=event.attach.target)
            return True
        return False

    peer = peers(hook=without_filters)
    peer.queues["q"] = [Message(data=[b"0"]).encode()]
    reader = reader_of(peer, tmp_path, selector="n > 1")
    with pytest.raises(errors.InvalidRequest, match=r"no selectors.*leave the option out"):
        reader.latestOffset(INITIAL, None)
    assert peer.outcomes == []  # messages that it sent meanwhile are not taken


@pytest.mark.parametrize("settle", ["spooled", "committed"])
def test_a_broker_that_is_killed_gives_each_message_once(queue: Queue, settle: str) -> None:
    queue.send(0, 200)
    reader = queue.reader(maxMessagesPerTrigger="50", settle=settle)
    end = next_batch(reader, INITIAL)
    numbers = bodies(reader, INITIAL, end)
    queue.restart_broker()
    more, _ = drained(reader, end)
    reader.stop()
    assert sorted(numbers + more) == list(range(200))
    assert queue.available() == 0
