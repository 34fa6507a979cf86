"""Explanation of an error of Spark's in one sentence."""

from __future__ import annotations

import re
from collections.abc import Iterator

from ..broker_core.errors import SparkUnsupported
from .interpreters import active_fault
from .spark_settings import DELTA_SPARKS, DELTA_VERSION

_OURS = re.compile(r"(?:penstock\.broker_core\.errors\.\w+: (?!\[PENSTOCK\.)|\[PENSTOCK\.[A-Z_]+\] )(.+)")
_CAUSED = re.compile(r"^Caused by: (.+)$", re.MULTILINE)  # by the JVM
_RAISED = re.compile(r"^(?:\w+\.)*\w*(?:Error|Exception|Exit)(?:: .+)?$", re.MULTILINE)  # the last line of a Python traceback

_NOT_FOUND = (
    "Spark does not find the format amqp: call penstock.register(spark), also in each Python thread before its first read or"
    " write. PYSPARK_PYTHON must name an interpreter that has penstock"
)
_NOT_INSTALLED = (
    "Spark's workers do not have the package penstock: set PYSPARK_PYTHON to an interpreter that has it, before Spark starts, and"
    " call penstock.register(spark)"
)

_VIEW = "CREATE TEMPORARY VIEW orders (body STRING) USING amqp OPTIONS (url '…', queue '…')"
#: Texts of Spark or Delta that hide the cause, and the sentence to show instead.
_THEIRS = (
    (
        r"BestEffortStagedTable\.table\(\)\" is null|amqp is not a valid Spark SQL Data Source",
        "a table of Spark's catalog cannot be a queue. Write with df.write.format('amqp').options(…).mode('append').save(),"
        f" and in SQL into a view: {_VIEW}",
    ),
    (
        r"\[INSERT_COLUMN_ARITY_MISMATCH\.NOT_ENOUGH_DATA_COLUMNS\].* `amqp`",
        "name the columns that are inserted: INSERT INTO orders (body, subject) …. Without names, INSERT INTO needs a value for"
        " each column of the view",
    ),
    (
        r"\[INCOMPATIBLE_DATA_FOR_TABLE\.CANNOT_FIND_DATA\].* `amqp`",
        f"a column of the view is NOT NULL, and INSERT INTO must name it: leave out NOT NULL, as in {_VIEW}",
    ),
    (
        r"\[INCOMPATIBLE_DATA_FOR_TABLE\.CANNOT_SAFELY_CAST\].* `amqp`.*`body` \"STRING\"",
        f"the body of this view is binary: insert binary('…'), or declare it as a string, as in {_VIEW}",
    ),
    (
        r"\[UNSUPPORTED_DATA_SOURCE_SAVE_MODE\].* \"amqp\"",
        "a write to a queue appends messages: df.write.format('amqp').options(…).mode(\"append\").save(). Without mode, and with"
        ' mode("ignore"), Spark asks whether a table exists, which a queue cannot answer',
    ),
    (r"S3AFileSystem not found", "this Spark session cannot read s3a://: add the packages for S3 that docs/spark.md names"),
    (
        r"\[DATA_SOURCE_NOT_FOUND\].*: delta\b",
        "this Spark session has no Delta: run `penstock conf spark > spark.conf`, and start Spark with --properties-file"
        f" spark.conf. Delta {DELTA_VERSION} supports Spark {', '.join(DELTA_SPARKS)}. On another Spark, use the format parquet",
    ),
)


def explain(error: BaseException) -> str:
    """Return the message of the innermost error, in one sentence.

    Spark wraps an error of the connector in the stack traces of two languages. For an error of another library, return the last
    line of its Python traceback, otherwise its first line.

    Args:
        error: Exception of a read, a write, or a query's `exception()`.

    Example:
        try:
            query.awaitTermination()
        except Exception as error:
            print(penstock.explain(error))
    """
    text = "\n".join(map(str, causes(error)))
    ours = _OURS.findall(text)
    if ours:
        return str(ours[-1]).strip()
    if "[DATA_SOURCE_NOT_FOUND]" in text and "amqp" in text:
        return _unsupported() or active_fault() or _NOT_FOUND
    if re.search(r"ModuleNotFoundError: No module named '(penstock|pyspark_penstock)\b", text):
        return active_fault() or _NOT_INSTALLED
    theirs = next((sentence for pattern, sentence in _THEIRS if re.search(pattern, text)), None)
    if theirs is not None:
        return theirs
    raised = _RAISED.findall(text) if "Traceback" in text else _CAUSED.findall(text)
    lines = [line for line in text.strip().splitlines() if line.strip()]
    return str(raised[-1]).strip() if raised else lines[0] if lines else type(error).__name__


def _unsupported() -> str | None:
    try:
        from . import spark_versions  # noqa: F401
    except SparkUnsupported as error:
        return str(error)
    return None


def causes(error: BaseException | None) -> Iterator[BaseException]:
    """Yield the exception and its causes, the innermost last. Spark stores its own causes in `_cause`."""
    while error is not None:
        yield error
        error = getattr(error, "_cause", None) or error.__cause__
