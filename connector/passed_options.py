"""Options that Spark passes to a source or a sink on its own, next to those of the user.

A test asks a running Spark which options it passes (`tests/spark/test_passed_options.py`). Spark Connect and pipelines call the
same methods on the server.

`partitionBy` and `clusterBy` pass nothing to a source in Python: Spark refuses a batch write with them, and ignores them in a
stream. Names for time travel (`timestampAsOf`), of file sources (`mergeSchema`) and the like come from users alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class Passed(NamedTuple):
    """An option that Spark reads by itself, so that the sink ignores it. `by` is what passes it."""

    name: str
    allowed: str
    by: str


#: Passed to every sink of a stream, and without a meaning for it.
ACCEPTED = (
    Passed("checkpointLocation", "a path", "DataStreamWriter.option, and start(checkpointLocation=…)"),
    Passed("queryName", "a text", "DataStreamWriter.queryName, and start(queryName=…)"),
)

NO_TABLE = (
    "a table of Spark's catalog cannot be a queue, because Spark 4.2 keeps its options from a source in Python. A view can:"
    " CREATE TEMPORARY VIEW orders USING amqp OPTIONS (url '…', queue '…'); with columns, such as VIEW out (body STRING, subject"
    " STRING), it takes INSERT INTO, too"
)
_NO_PATH = (
    "a path has no meaning for the format amqp: name the queue with the option queue, and leave the path out of load(), save()"
    " and start(). Call start() instead of toTable(), which passes the path of a table"
)
#: Options that name another place than a queue, and how to do without.
_REFUSED = {
    "provider": NO_TABLE,  # by CREATE TABLE, with `owner`, and with each of the user's options a second time as `option.NAME`
    "path": _NO_PATH,  # by load(path), save(path), start(path) and toTable(name)
    "paths": _NO_PATH,  # by load([path, …])
}


def refusal(names: Iterable[str]) -> str | None:
    """Return why options of these names are refused; None if they are not."""
    given = {name.lower() for name in names}
    return next((text for name, text in _REFUSED.items() if name in given), None)
