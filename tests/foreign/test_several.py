"""Several foreign brokers behind one query: each has a spool of its own, whose id names it in the offsets."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.broker_core.client.amqp.address import parse
from penstock.broker_core.client.flight import Client
from penstock.connector.brokers import consumer as brokers
from penstock.connector.foreign import consumer
from penstock.connector.foreign.intake import Intake
from penstock.connector.source import AmqpSource
from penstock.connector.stream.reader import StreamReader

from ..waiting import until
from .helpers import INITIAL, LIMIT, Queue, bodies, came, drained, next_batch, rows
from .hidden import Hidden


@pytest.fixture
def twin(queue: Queue, tmp_path: Path) -> Iterator[Queue]:
    """The queue of the same name at a second broker."""
    with ExitStack() as stack:
        broker = stack.enter_context(Broker(tmp_path / "second", fsync="never"))
        hidden = Hidden(parse(broker.amqp_url).port)
        stack.callback(hidden.close)
        yield Queue(broker, hidden, stack.enter_context(Client(broker.url)), queue.name, tmp_path / "other")


def both(queue: Queue, twin: Queue, **options: str) -> dict[str, str]:
    return {"url": f"{queue.hidden.url},{twin.hidden.url}", "spool": f"{queue.spool}, {twin.spool}", **options}


def test_each_message_of_both_comes_once_and_the_limit_is_that_of_all(queue: Queue, twin: Queue) -> None:
    queue.send(0, 50)
    twin.send(100, 130)
    options = both(queue, twin, maxMessagesPerTrigger="20")
    first = queue.reader(("body",), **options)
    first.prepareForTriggerAvailableNow()
    end = next_batch(first, INITIAL)
    batch = bodies(first, INITIAL, end)
    first.stop()
    queue.released(), twin.released()

    second = queue.reader(("body",), **options)  # as after a crash: the batch is the same, and the query continues from there
    assert bodies(second, INITIAL, end) == batch
    assert len(batch) <= 20
    rest, last = drained(second, end)
    assert sorted(batch + rest) == [*range(50), *range(100, 130)]
    assert (end["kind"], len(last["brokers"])) == ("brokers", 2)
    assert second.reportLatestOffset()["queues"][queue.name]["received"] >= 60
    assert queue.available() + twin.available() == 0


def test_a_message_larger_than_the_limit_is_a_batch_alone_also_beside_another_broker(queue: Queue, twin: Queue) -> None:
    """And a run does not end before it has come."""
    large, small = Message(data=[bytes(5000)]).encode(), Message(data=[bytes(100)]).encode()
    queue.send_octets([large, large])
    twin.send_octets([small, large])
    reader = queue.reader(("body",), **both(queue, twin, maxBytesPerTrigger="1000"))
    reader.prepareForTriggerAvailableNow()
    end, sizes = INITIAL, []
    while (start := end) != (end := reader.latestOffset(start, LIMIT)):
        sizes.append(sorted(len(row["body"]) for row in rows(reader, start, end)))
        came(reader, queue, 4 - sum(map(len, sizes)))  # nothing is left out because it is still on its way
    assert sorted(sizes) == [[100], [5000], [5000], [5000]]
    assert queue.available() + twin.available() == 0


def test_the_checkpoint_of_one_goes_on_with_two_and_a_part_that_is_held_is_needed(queue: Queue, twin: Queue) -> None:
    queue.send(0, 3)
    twin.send(10, 13)
    reader = queue.reader(("body",))
    end = next_batch(reader, INITIAL)
    assert bodies(reader, INITIAL, end) == [0, 1, 2]
    reader.stop()
    queue.released()
    assert end["kind"] == "spool"
    two = queue.reader(("body",), **both(queue, twin))
    numbers, last = drained(two, end)
    assert numbers == [10, 11, 12]
    two.stop()
    alone = {"url": queue.hidden.url, "spool": str(queue.spool)}
    with pytest.raises(errors.WrongOffset, match="holds a batch of this query"):
        queue.reader(("body",), **alone).latestOffset({**last, "held": list(last["brokers"])}, None)  # type: ignore[arg-type]


def test_one_broker_under_two_names_gives_each_message_once_while_nothing_is_lost(queue: Queue) -> None:
    """Two spools share its messages: it is not visible that there is one broker."""
    again = Hidden(parse(queue.broker.amqp_url).port)
    try:
        queue.send(0, 300)
        two = {"url": f"{queue.hidden.url},{again.url}", "spool": f"{queue.spool},{queue.spool}-again"}
        reader = queue.reader(("body",), **two, maxMessagesPerTrigger="100")
        numbers, _ = drained(reader)
        reader.stop()
        assert sorted(numbers) == list(range(300))
        assert queue.available() == 0
    finally:
        again.close()


def begun(queue: Queue, twin: Queue) -> tuple[StreamReader, dict[str, Any]]:
    """An `availableNow` run over both that continues without one that is away, and has had a batch of each."""
    queue.send(0, 5)
    twin.send(100, 105)
    reader = queue.reader(("body",), **both(queue, twin, failOnBrokerLoss="false"))
    reader.prepareForTriggerAvailableNow()
    end = INITIAL
    numbers: list[int] = []
    while len(numbers) < 10:
        start, end = end, next_batch(reader, end)
        numbers += bodies(reader, start, end)
    return reader, end


def rest(reader: StreamReader, start: dict[str, Any]) -> list[int]:
    """Read the rest of the run, after this offset."""
    numbers: list[int] = []
    while (end := reader.latestOffset(start, LIMIT)) != start:
        numbers += bodies(reader, start, end)
        start = end
    return numbers


def test_a_run_that_ends_waits_for_brokers_whose_batches_take_long(
    queue: Queue, twin: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Also with `failOnBrokerLoss=false`: they are busy, and not away."""
    reader, end = begun(queue, twin)
    monkeypatch.setattr(consumer, "ENDING_QUIET_S", 0.2)
    monkeypatch.setattr(brokers, "HOLD_UP_S", 0.01)
    queue.send(5, 10)
    twin.send(105, 110)
    # The run may end first where a drain of the batches before was half a second ago.
    came(reader, queue, 10)
    assert sorted(rest(reader, end)) == [*range(5, 10), *range(105, 110)]
    assert queue.available() + twin.available() == 0
    assert not [text for text in caplog.messages if "continues without the broker" in text]


def test_a_run_that_ends_waits_for_a_broker_to_which_a_connection_takes_long(
    queue: Queue, twin: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Only one that has not answered an attempt is away."""
    queue.send(0, 5)
    twin.send(100, 105)
    reader = queue.reader(("body",), **both(queue, twin, failOnBrokerLoss="false"))
    reader.prepareForTriggerAvailableNow()
    monkeypatch.setattr(brokers, "HOLD_UP_S", 0.01)
    real, real_wait = Intake.start, brokers.wait
    connects, in_vain = threading.Event(), list[int]()

    def start(intake: Intake) -> None:
        connects.wait(30)
        real(intake)

    def wait(*arguments: Any) -> Any:
        outcome = real_wait(*arguments)
        if outcome.not_done:
            in_vain.append(len(outcome.not_done))
        if len(in_vain) == 3:  # they are held up no longer
            connects.set()
        return outcome

    monkeypatch.setattr(Intake, "start", start)
    monkeypatch.setattr(brokers, "wait", wait)
    try:
        assert sorted(rest(reader, INITIAL)) == [*range(5), *range(100, 105)]
    finally:
        connects.set()
    assert not [text for text in caplog.messages if "continues without the broker" in text]


def test_a_run_that_ends_does_not_wait_for_a_broker_that_is_away(
    queue: Queue, twin: Queue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    reader, end = begun(queue, twin)
    monkeypatch.setattr(brokers, "HOLD_UP_S", 0.01)
    twin.hidden.away = True
    twin.hidden.cut()
    until(lambda: "away" in reader.reportLatestOffset()["queues"], "the loss is noticed")
    queue.send(5, 10)
    came(reader, queue, 5)
    assert rest(reader, end) == [*range(5, 10)]
    (warning,) = (text for text in caplog.messages if f"without the broker at {twin.hidden.url}" in text)
    assert "nothing for 0.01 s" in warning


@pytest.mark.parametrize("spool", ["/one", "/one,/one", "/one,/two,/three"])
def test_each_has_a_folder_of_its_own(spool: str) -> None:
    with pytest.raises(errors.InvalidOption, match="each foreign broker has its own folder"):
        AmqpSource({"url": "amqp://a,amqp://b", "queue": "q", "spool": spool})


def test_a_penstock_beside_them_and_a_write_to_them_are_refused(queue: Queue, twin: Queue) -> None:
    mixed: dict[str, Any] = both(queue, twin, url=f"{queue.hidden.url},{twin.broker.amqp_url}")
    with pytest.raises(errors.InvalidOption, match="which needs no spool"):
        next_batch(queue.reader(("body",), **mixed), INITIAL)
    source = AmqpSource({"url": both(queue, twin)["url"], "queue": queue.name})
    with pytest.raises(errors.InvalidOption, match="Write to each other broker separately"):
        source.writer(StructType([StructField("body", BinaryType())]), False)
