"""`penstock.explain`: one sentence out of an error of Spark's."""

from __future__ import annotations

import pytest

import penstock
from penstock.connector import explanation

OURS = """[PYTHON_DATA_SOURCE_ERROR] Failed when running Python data source instance: Traceback (most recent call last):
  File "worker.py", line 1, in main
penstock.broker_core.errors.PeerError: no answer from grpc://127.0.0.1:1

During handling of the above exception, another exception occurred:
  File "worker.py", line 2, in main
penstock.broker_core.errors.NotFound: there is no queue 'orders': declare it with `penstock queue declare orders`
  at org.apache.spark.Somewhere(Somewhere.scala:1)
"""
OURS_SAID = "there is no queue 'orders': declare it with `penstock queue declare orders`"
CONNECT = f"(org.apache.spark.SparkException) Job aborted due to stage failure: [PENSTOCK.QUEUE_NOT_FOUND] {OURS_SAID}"
THEIRS = """Job aborted
Traceback (most recent call last):
  File "udf.py", line 1, in f
ZeroDivisionError: division by zero
"""


class SparkError(Exception):
    """An exception of Spark's own side, which stores its cause in `_cause`."""

    _cause: BaseException | None = None


@pytest.mark.parametrize(
    ("text", "sentence"),
    [
        (OURS, OURS_SAID),
        (OURS.replace("errors.NotFound: ", "errors.QueueNotFound: [PENSTOCK.QUEUE_NOT_FOUND] "), OURS_SAID),
        (CONNECT, OURS_SAID),
        (THEIRS, "ZeroDivisionError: division by zero"),
        ("\n  [TABLE_NOT_FOUND] no such table\n  at line 2", "[TABLE_NOT_FOUND] no such table"),
        (
            "calling o1.saveAsTable.\n: INTERNAL_ERROR\n\tat x(y:1)\nCaused by: java.lang.Error: why\n\tat z",
            "java.lang.Error: why",
        ),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: amqp. Make sure", explanation._NOT_FOUND),
        ("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure", explanation._THEIRS[-1][1]),
        (
            'saveAsTable.\n: java.lang.NullPointerException: Cannot invoke "Table.schema()" because the return value of'
            ' "org.apache.spark.sql.delta.catalog.AbstractDeltaCatalog$BestEffortStagedTable.table()" is null',
            explanation._THEIRS[0][1],
        ),
        ("amqp is not a valid Spark SQL Data Source.", explanation._THEIRS[0][1]),
        (
            "[INSERT_COLUMN_ARITY_MISMATCH.NOT_ENOUGH_DATA_COLUMNS] Cannot write to `amqp`, the reason is",
            explanation._THEIRS[1][1],
        ),
        (
            "[INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_FIND_DATA] Cannot write incompatible data for the table `amqp`: no data",
            explanation._THEIRS[2][1],
        ),
        (
            "[INCOMPATIBLE_DATA_FOR_TABLE.CANNOT_SAFELY_CAST] Cannot write incompatible data for the table `amqp`: Cannot safely"
            ' cast `body` "STRING" to "BINARY". SQLSTATE: KD000',
            explanation._THEIRS[3][1],
        ),
        (
            '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] The data source "amqp" cannot be written in the "ErrorIfExists" mode. Please use'
            ' either the "Append" or "Overwrite" mode instead. SQLSTATE: 0A000',
            explanation._THEIRS[4][1],
        ),
        (
            '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] The data source "other" cannot be written in the "Ignore" mode.',
            '[UNSUPPORTED_DATA_SOURCE_SAVE_MODE] The data source "other" cannot be written in the "Ignore" mode.',
        ),
        ("", "SparkError"),
    ],
)
def test_the_sentence_that_matters(text: str, sentence: str) -> None:
    assert penstock.explain(SparkError(text)).strip() == sentence


def test_a_cause_says_more_than_what_it_led_to() -> None:
    outer = SparkError("Job aborted")
    outer._cause = SparkError("Stage failed")
    outer._cause.__cause__ = SparkError(OURS)
    assert penstock.explain(outer).startswith("there is no queue 'orders'")
