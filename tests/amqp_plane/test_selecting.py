"""Q2 Q6 Q8 on the wire: links and browsers with `apache.org:selector-filter:string`."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import Accepted, Condition, Receiver, Source, Target, events
from penstock.broker_core.amqp.performatives import Attach
from penstock.broker_core.amqp.states import LinkState
from penstock.broker_core.amqp.types import Described, Symbol, ULong
from penstock.broker_core.amqp_plane.loop.interest import INTERESTED
from penstock.broker_core.engine import commands as c
from penstock.broker_core.service import matching

from ..journal.lying_disk import LyingDisk
from ..service.test_matching import colours
from .frames import receives
from .harness import Stage, stage

RED = "colour = 'red'"
BY_NAME, BY_NUMBER = Symbol("apache.org:selector-filter:string"), ULong(0x0000468C00000004)


class Selecting:
    """A connection with a link that receives the matching messages from q, and accepts them."""

    def __init__(self, made: Stage, name: str, text: Any = RED, *, browse: bool = False, by: Any = BY_NAME) -> None:
        self.client = made.client(name)
        self.client.on_event = self._on_event
        self.got: list[int] = []
        self.refused: Any = None
        self.drained = False
        self.link: Receiver = self.client.connection.begin().receiver(name)
        filters = {} if text is None else {Symbol("jms-selector"): Described(by, text)}
        source = Source(address="q", distribution_mode="copy" if browse else None, filter=filters)
        self._attach(source)
        self.client.until(lambda: self.refused is not None or self.link.state is LinkState.ATTACHED, "an answer to the attach")

    def _attach(self, source: Source) -> None:
        self.link.attach(source=source, target=Target())

    def _on_event(self, event: Any) -> None:
        if isinstance(event, events.Detached):
            self.refused = event.error
        if isinstance(event, events.Delivered):
            self.got += [int.from_bytes(delivery.tag, "big") for delivery in event.deliveries]
            event.link.session.dispose(event.deliveries, Accepted())

    def gets(self, *numbers: int, credit: int | None = None) -> None:
        """Check that the link receives exactly these messages."""
        self.got.clear()
        self.link.grant(len(numbers) + 5 if credit is None else credit, drain=True)
        self.client.until(lambda: self.link.link_credit == 0, "the end of the credit")
        assert self.got == list(numbers)


@pytest.fixture
def made(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, disk=LyingDisk()) as broker:
        broker.declare("q")
        yield broker


@pytest.mark.parametrize("by", [BY_NAME, BY_NUMBER])
def test_a_link_gets_what_matches_and_its_source_says_so(made: Stage, by: Any) -> None:
    made.service.submit(colours(6, 1, 4))
    taker = Selecting(made, "taker", by=by)
    assert taker.link.remote_attach.source.filter == {"jms-selector": Described(by, RED)}
    taker.gets(1, 4)
    taker.gets()
    made.service.submit(colours(3, 2))
    taker.gets(8)
    Selecting(made, "rest", None).gets(0, 2, 3, 5, 6, 7)


def test_what_comes_is_delivered_to_who_waits_for_it(made: Stage) -> None:
    red, blue = Selecting(made, "red"), Selecting(made, "blue", "colour = 'blue'")
    for consumer in (red, blue):
        consumer.link.grant(100)
        consumer.client.pump()
    for number in range(20):
        made.service.submit(colours(1, 0) if number % 3 == 0 else colours(1))
    red.client.until(lambda: len(red.got) == 7, "the red ones")
    blue.client.until(lambda: len(blue.got) == 13, "the blue ones")
    assert red.got == list(range(0, 20, 3))
    assert blue.got == [number for number in range(20) if number % 3]


def test_a_browser_sees_what_matches_and_takes_nothing(made: Stage) -> None:
    made.service.submit(colours(6, 1, 4))
    browser = Selecting(made, "browser", browse=True)
    browser.gets(1, 4)
    assert made.counts("q")["available"] == 6
    Selecting(made, "taker").gets(1, 4)


def test_what_one_gives_back_is_offered_to_the_next_before_what_comes_later(made: Stage) -> None:
    made.service.submit(colours(6, 0, 2, 4))
    first, second = Selecting(made, "first"), Selecting(made, "second")
    first.client.on_event = lambda event: None
    first.link.grant(1)
    first.client.until(lambda: len(first.link.unsettled) == 1, "the first one")
    second.gets(2, credit=1)
    first.link.detach()
    first.client.until(lambda: first.link.state is LinkState.DETACHED, "the end of the link")
    second.gets(0, 4)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("colour =", "at character 9: found the end"),
        ("JMSRedelivered", "a selector is evaluated once"),
        (5, "a selector is a string"),
    ],
)
def test_a_bad_selector_refuses_the_link_and_says_what_is_wrong(made: Stage, text: Any, reason: str) -> None:
    refused = Selecting(made, "refused", text).refused
    assert refused.condition == Condition.INVALID_FIELD
    assert reason in refused.description


def test_a_cold_queue_is_evaluated_in_pieces_beside_the_loop(made: Stage, monkeypatch: Any) -> None:
    """Consumers without a selector are served while another selector is being evaluated."""
    monkeypatch.setattr(matching, "CHUNK_ROWS", 100)
    made.service.submit(colours(1000, 950))
    evaluate, threads, go = matching.matches, set(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        threads.add(threading.current_thread().name)
        go.wait()
        return evaluate(*arguments)

    monkeypatch.setattr(matching, "matches", slowly)
    taker, unfiltered = Selecting(made, "taker"), Selecting(made, "other", None)
    taker.link.grant(5, drain=True)
    taker.client.pump()
    unfiltered.gets(0, 1, 2, credit=3)
    assert taker.got == []
    go.set()
    taker.client.until(lambda: taker.link.link_credit == 0, "the end of the credit")
    assert taker.got == [950]
    assert {name.rsplit("_")[0] for name in threads} == {"penstock-selecting"}


def test_a_link_whose_selector_cannot_be_evaluated_ends_with_the_reason(made: Stage, monkeypatch: Any) -> None:
    def fails(*arguments: Any) -> Any:
        raise errors.DamagedJournal("the record at 5 is damaged")

    made.service.submit(colours(5, 1))
    monkeypatch.setattr(matching, "matches", fails)
    taker, unfiltered = Selecting(made, "taker"), Selecting(made, "other", None)
    taker.link.grant(5)
    taker.client.until(lambda: taker.refused is not None, "the end of the link")
    assert "damaged" in taker.refused.description
    unfiltered.gets(0, 1, 2, 3, 4)


def test_links_with_the_same_selector_share_its_evaluation(made: Stage, monkeypatch: Any) -> None:
    rows: list[int] = []
    evaluate = matching.matches

    def counted(selector: Any, payload: Any, presence: Any) -> Any:
        rows.append(payload.num_rows)
        return evaluate(selector, payload, presence)

    monkeypatch.setattr(matching, "matches", counted)
    made.service.submit(colours(100, *range(0, 100, 2)))
    takers = [Selecting(made, f"taker {number}") for number in range(5)]
    for taker in takers:
        taker.gets(*range(20 * takers.index(taker), 20 * takers.index(taker) + 20, 2), credit=10)
    assert rows == [100]


class Waiting(Selecting):
    """A consumer with a priority and unlimited credit."""

    def __init__(self, made: Stage, name: str, text: Any = None, priority: int = 0) -> None:
        self.made, self.priority = made, priority
        super().__init__(made, name, text)
        self.link.grant(10_000)
        self.client.pump()
        made.until(self._waits, f"{name} waits for messages")

    def _attach(self, source: Source) -> None:
        self.link.attach(source=source, target=Target(), properties={"priority": self.priority})

    def _waits(self) -> bool:
        interest = self.made.plane.commit_loop.acquisitions._queues["q"]
        return any(link.link.name == self.link.name and link.standing == INTERESTED for link in list(interest.members.values()))


def _got(consumers: list[Waiting]) -> int:
    for consumer in consumers:
        consumer.client.pump()
    return sum(len(consumer.got) for consumer in consumers)


def _all_come(made: Stage, consumers: list[Waiting], count: int, burst: int, red: int) -> list[int]:
    """Count the messages that each consumer received. They come in bursts, every `red`th is red, and each burst waits for the one
    before.
    """
    for come in range(burst, count + 1, burst):
        made.service.submit(colours(burst, *range(0, burst, red)))
        made.until(lambda come=come: _got(consumers) == come, "all messages")  # type: ignore[misc]
    assert sorted(number for consumer in consumers for number in consumer.got) == list(range(count))
    return [len(consumer.got) for consumer in consumers]


@pytest.mark.parametrize("burst", [1, 20])
def test_who_has_a_selector_and_the_higher_priority_gets_all_that_it_matches(made: Stage, burst: int) -> None:
    """C2: although its selector is evaluated after the messages have come, and the other is ready."""
    high, low = Waiting(made, "high", RED, 10), Waiting(made, "low", None, 0)
    assert _all_come(made, [high, low], 200, burst, red=1) == [200, 0]


def test_what_the_higher_one_does_not_match_is_the_lower_ones(made: Stage) -> None:
    """C2: message by message, at any place."""
    low, high = Waiting(made, "low", None, 0), Waiting(made, "high", RED, 10)
    assert _all_come(made, [high, low], 200, 20, red=4) == [50, 150]
    assert all(number % 20 % 4 == 0 for number in high.got)


@pytest.mark.parametrize("first", ["with", "without"])
def test_equals_take_turns_whether_they_have_a_selector_or_not(made: Stage, first: str) -> None:
    """C4: a link that waits for its selector's evaluation does not lose its turn."""
    kinds = {"with": RED, "without": None}
    names = [first, *(name for name in kinds if name != first)]
    consumers = [Waiting(made, name, kinds[name]) for name in names]
    assert _all_come(made, consumers, 200, 1, red=1) == [100, 100]


def test_several_selectors_share_with_one_without(made: Stage) -> None:
    """C4: each selector is evaluated independently; all of them match."""
    texts = [None, RED, "colour = 'red' or colour = 'green'", "colour like 'r%'"]
    consumers = [Waiting(made, f"{number}", text) for number, text in enumerate(texts)]
    counts = _all_come(made, consumers, 200, 1, red=1)
    assert max(counts) - min(counts) <= 10, counts  # one may still be at the message before


def test_what_comes_back_is_offered_by_priority_too(made: Stage) -> None:
    """C2 Q2: a message that returns, after its bitmap has gone."""
    holder = Selecting(made, "holder", None)
    holder.client.on_event = lambda event: None
    made.service.submit(colours(10, *range(10)))
    holder.link.grant(10)
    holder.client.until(lambda: len(holder.link.unsettled) == 10, "all ten")
    high, low = Waiting(made, "high", RED, 10), Waiting(made, "low", None, 0)
    with made.service.turn():
        made.service.matching._cache._bitmaps.clear()
    holder.link.detach()
    holder.client.until(lambda: holder.link.state is LinkState.DETACHED, "the end of the link")
    high.client.until(lambda: len(high.got) == 10, "all ten")
    assert (high.got, low.got) == (list(range(10)), [])


def test_a_higher_one_that_ends_while_its_selector_is_evaluated_holds_nobody_up(made: Stage, monkeypatch: Any) -> None:
    evaluate, go, looks = matching.matches, threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        looks.set()
        assert go.wait(30)
        return evaluate(*arguments)

    high, low = Waiting(made, "high", RED, 10), Waiting(made, "low", None, 0)
    monkeypatch.setattr(matching, "matches", slowly)
    made.service.submit(colours(3))
    assert looks.wait(30)
    made.settle()
    low.client.pump()
    assert low.got == []
    high.client.drop()
    low.client.until(lambda: low.got == [0, 1, 2], "the messages that the other has left")
    go.set()


def test_who_is_held_back_and_drains_hears_when_it_is_known_what_it_gets(made: Stage, monkeypatch: Any) -> None:
    evaluate, go, looks = matching.matches, threading.Event(), threading.Event()

    def slowly(*arguments: Any) -> Any:
        looks.set()
        assert go.wait(30)
        return evaluate(*arguments)

    high, low = Waiting(made, "high", RED, 10), Selecting(made, "low", None)
    monkeypatch.setattr(matching, "matches", slowly)
    made.service.submit(colours(4, 1, 2))
    assert looks.wait(30)
    low.link.grant(9, drain=True)
    low.client.pump()
    made.settle()
    low.client.pump()
    assert (low.got, low.link.link_credit) == ([], 9)
    go.set()
    low.client.until(lambda: low.link.link_credit == 0, "the end of the credit")
    assert low.got == [0, 3]
    high.client.until(lambda: high.got == [1, 2], "the red ones")


def test_with_a_backlog_both_are_served(made: Stage) -> None:
    """C2: a lower link receives messages that the higher one has passed, while that one's selector is evaluated further on."""
    made.service.submit(colours(40_000, *range(0, 40_000, 2)))
    high, low = Selecting(made, "high", RED), Selecting(made, "low", None)
    for consumer in (high, low):
        consumer.link.grant(5_000)
    for _ in range(2):
        high.client.until(lambda: len(high.got) == 5_000, "all that it has credit for")
        low.client.until(lambda: len(low.got) == 5_000, "all that it has credit for")
    assert all(number % 2 == 0 for number in high.got)


# --- names that look like fields, blank selectors, other filters


PRIORITY = "in a selector 'priority' is an application property{}; for the message's priority write JMSPriority or amqp.priority"


def hint_of(selecting: Selecting) -> str | None:
    hint: str | None = (selecting.link.remote_attach.properties or {}).get("selector-hint")
    return hint


def test_the_answer_to_an_attach_names_the_field_that_a_selector_may_mean(made: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made.service.submit(colours(3))
    first = Selecting(made, "first", "priority > 4")
    assert hint_of(first) == PRIORITY.format("")  # nothing is compared yet
    first.gets()
    made.service.submit(colours(3))
    first.gets()
    assert hint_of(Selecting(made, "second", "priority > 4")) == PRIORITY.format(", which no compared message has")
    lines = [record.getMessage() for record in caplog.records if "no compared message" in record.getMessage()]
    assert lines == [f"queue 'q', selector 'priority > 4': {PRIORITY.format(', which no compared message has')}"]


def test_a_message_with_the_property_ends_the_hint(made: Stage, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    made.service.submit(colours(3, 1, named="priority"))
    first = Selecting(made, "first", "priority = 'red'")
    assert hint_of(first) == PRIORITY.format("")
    first.gets(1)
    assert hint_of(Selecting(made, "second", "priority = 'red'")) is None
    assert "no compared message" not in caplog.text


@pytest.mark.parametrize("text", ["properties.priority > 4", "colour = 'red'", "JMSPriority > 4", None])
def test_other_selectors_get_no_hint(made: Stage, text: str | None) -> None:
    assert hint_of(Selecting(made, "taker", text)) is None


def test_a_subscription_gets_the_hint_too(made: Stage) -> None:
    made.service.submit(c.DeclareExchange("news", "fanout"))
    client = made.client("subscriber")
    link = client.connection.begin().receiver("news")
    filters = {Symbol("jms-selector"): Described(BY_NAME, "subject = 'a'")}
    link.attach(source=Source(address="news", filter=filters), target=Target())
    client.until(lambda: link.state is LinkState.ATTACHED, "an answer to the attach")
    assert "write JMSType or amqp.subject" in link.remote_attach.properties["selector-hint"]


def test_a_peer_with_small_frames_gets_no_hint(made: Stage) -> None:
    script = made.script(max_frame_size=512)
    script.begin()
    filters = {Symbol("jms-selector"): Described(BY_NAME, "priority > 4")}
    script.send(receives(source=Source(address="q", filter=filters)))
    assert script.expect(Attach).properties is None


@pytest.mark.parametrize("text", ["", " \t\r\n"])
@pytest.mark.parametrize("browse", [False, True])
def test_a_blank_selector_is_granted_and_takes_everything(made: Stage, text: str, browse: bool) -> None:
    made.service.submit(colours(3, 1))
    taker = Selecting(made, "taker", text, browse=browse)
    assert taker.link.remote_attach.source.filter == {"jms-selector": Described(BY_NAME, text)}
    taker.gets(0, 1, 2)


def test_a_blank_selector_of_a_subscription_is_none(made: Stage) -> None:
    made.service.submit(c.DeclareExchange("news", "fanout"))
    client = made.client("subscriber")
    link = client.connection.begin().receiver("news")
    filters = {Symbol("jms-selector"): Described(BY_NAME, " ")}
    link.attach(source=Source(address="news", filter=filters), target=Target())
    client.until(lambda: link.state is LinkState.ATTACHED, "an answer to the attach")
    ((binding,),) = [exchange["bindings"] for exchange in made.service.submit(c.ListExchanges())]
    assert "selector" not in binding


def test_the_properties_of_jms_that_are_no_fields_can_be_selected(made: Stage) -> None:
    made.service.submit(colours(3, 1, named="JMSXAppID"))
    Selecting(made, "taker", "JMSXAppID = 'red'").gets(1)


@pytest.mark.parametrize(
    ("key", "value", "shown"),
    [
        ("sql", Described(Symbol("amqp:sql-filter"), "priority > 4"), "sql (amqp:sql-filter)"),
        ("sql", Described(ULong(0x120), "priority > 4"), "sql (288)"),
        ("jms-selector", RED, "jms-selector"),
    ],
)
def test_a_filter_that_is_not_granted_is_left_out_of_the_answer_and_named_in_the_log(
    made: Stage, caplog: pytest.LogCaptureFixture, key: str, value: Any, shown: str
) -> None:
    caplog.set_level(logging.INFO)
    client = made.client("taker")
    link = client.connection.begin().receiver("taker")
    granted = {Symbol("apache.org:no-local-filter:list"): Described(BY_NAME, RED)}
    link.attach(source=Source(address="q", filter={Symbol(key): value, **granted}), target=Target())
    client.until(lambda: link.state is LinkState.ATTACHED, "an answer to the attach")
    assert link.remote_attach.source.filter == granted
    (line,) = [record.getMessage() for record in caplog.records if "not granted" in record.getMessage()]
    assert line.endswith(f"link 'taker': receives all messages, because these filters are not granted: {shown}")
