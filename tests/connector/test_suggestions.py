"""Names of other connectors, and near misses, are answered with ours."""

from __future__ import annotations

import pytest

from penstock.broker_core.errors import InvalidColumn, InvalidOption
from penstock.broker_core.messages.columns import SENT_COLUMNS
from penstock.connector import suggestions
from penstock.connector.options import OPTIONS, Options
from penstock.connector.schema import TYPES, check_source, sink_columns, source_schema

NAMES = [option.name for option in OPTIONS]


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("kafka.bootstrap.servers", "did you mean url?"),
        ("service.url", "did you mean url?"),
        ("eventhubs.connectionString", "did you mean connectionString?"),
        ("subscribe", "did you mean queue?"),
        ("topics", "did you mean queue?"),
        ("EntityPath", "did you mean queue?"),
        ("queues", "did you mean queue?"),
        ("subscribePattern", "name the queues in queue, up to 128 with commas between them."),
        ("startingOffsets", "a stream takes the waiting messages; a batch read, and mode=replay, begin at startingSequence"),
        ("eventhubs.startingPosition", "a stream takes the waiting messages"),
        ("endingOffsets", "did you mean endingSequence?"),
        ("maxOffsetsPerTrigger", "did you mean maxMessagesPerTrigger?"),
        ("maxEventsPerTrigger", "did you mean maxMessagesPerTrigger?"),
        ("kafka.group.id", "did you mean lease?"),
        ("predefinedSubscription", "did you mean lease?"),
        ("eventhubs.consumerGroup", "did you mean lease?"),
        ("kafka.fetch.max.wait.ms", "leave it out, settings of other connectors have no meaning here."),
        ("max_messages_per_trigger", "did you mean maxMessagesPerTrigger?"),
        ("user_name", "did you mean userName?"),
        ("maxMesagesPerTrigger", "did you mean maxMessagesPerTrigger?"),
        ("ca-file", "did you mean caFile?"),
    ],
)
def test_an_option_of_another_name_is_answered_with_ours(name: str, answer: str) -> None:
    with pytest.raises(InvalidOption) as refusal:
        Options({name: "x"})
    assert str(refusal.value).startswith(f"there is no option {name!r}: {answer}")
    assert "Allowed are" in str(refusal.value)


def test_a_name_like_no_other_gets_no_guess() -> None:
    with pytest.raises(InvalidOption, match=r"there is no option 'colour'\. Allowed are caFile"):
        Options({"colour": "red"})


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("value", "body"),
        ("payload", "body"),
        ("key", "groupId"),
        ("__key", "groupId"),
        ("partitionKey", "groupId"),
        ("topic", "queue"),
        ("headers", "properties"),
        ("__messageProperties", "properties"),
        ("message_id", "messageId"),
        ("content_type", "contentType"),
        ("propertys", "properties"),
    ],
)
def test_a_column_of_another_name_is_answered_with_ours(name: str, meant: str) -> None:
    schema = source_schema(("body",)).add(name, "string")
    for known in (lambda: sink_columns(schema, queue="q", ignore_unknown=False), lambda: check_source(schema, stream=True)):
        with pytest.raises(InvalidColumn, match=f"column '{name}': did you mean '{meant}'\\?"):
            known()


def test_every_name_that_is_answered_is_one_of_ours_or_a_way_out() -> None:
    answers = set(suggestions._OPTIONS.values())
    assert {answer for answer in answers if " " not in answer} <= set(NAMES)
    assert set(suggestions._COLUMNS.values()) <= {*TYPES, *SENT_COLUMNS, "queue"}
    for table, known in ((suggestions._OPTIONS, NAMES), (suggestions._COLUMNS, list(TYPES))):
        assert all(name == suggestions.plain(name) and name not in map(suggestions.plain, known) for name in table)
