"""Names in the option `selector` that may be meant as fields: the driver's log names the field.

A blank selector has no effect.
"""

from __future__ import annotations

import pytest

from penstock.connector.batch.reader import BatchReader
from penstock.connector.options import Options
from penstock.connector.schema import default_schema

from .helpers import INITIAL, LIMIT, Queue, read_all

ABSENT = (
    "option selector: in a selector 'priority' is an application property, which no compared message has; for the message's"
    " priority write JMSPriority or amqp.priority"
)


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    messages = [record.getMessage() for record in caplog.records if record.name == "penstock"]
    caplog.clear()
    return messages


def test_the_log_names_the_field_that_a_selector_may_mean_once(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    queue.send(1)
    reader = queue.reader(selector="priority > 4")
    for _ in range(3):
        assert reader.latestOffset(INITIAL, LIMIT) == INITIAL
    assert warnings(caplog) == [ABSENT]
    queue.reader(selector="JMSPriority > 4").latestOffset(INITIAL, LIMIT)
    queue.reader(selector="properties.priority > 4").latestOffset(INITIAL, LIMIT)
    assert warnings(caplog) == []


def test_a_batch_read_names_the_field_that_a_selector_may_mean(queue: Queue, caplog: pytest.LogCaptureFixture) -> None:
    """Its tasks compare the messages, so the planner does not know whether they have the property."""

    def planned(selector: str) -> list[str]:
        options = Options({"url": queue.broker.url, "queue": queue.name, "selector": selector})
        reader = BatchReader(options, default_schema())
        reader.partitions()
        reader.partitions()
        return warnings(caplog)

    assert planned("priority > 4") == [ABSENT.replace(", which no compared message has", "")]
    assert planned("JMSPriority > 4") == planned('"priority" > 4') == planned("") == []


def test_a_blank_selector_takes_every_message(queue: Queue) -> None:
    queue.send(2)
    reader = queue.reader(selector=" ")
    end = reader.latestOffset(INITIAL, LIMIT)
    assert read_all(reader, INITIAL, end) == [0, 1]
    assert queue.reader().latestOffset(end, LIMIT) == end  # without the option it is the same query
