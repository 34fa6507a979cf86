"""The name of a Spark query, from the description that Spark gives the jobs of a micro-batch."""

from __future__ import annotations

import pytest
from pyspark.taskcontext import TaskContext

from penstock.connector.task.context import BATCH_ID, DESCRIPTION, QUERY_ID, query_name

QUERY = "2f6a8b0e-53ce-4b5f-9d38-0d21e1ad54c1"
RUN = "9e3b7f00-0000-4000-8000-000000000000"


def described(first_line: str, query: str = QUERY) -> str:
    """Return a description as Spark 4.2 writes it; `test_stream.py` compares it with Spark."""
    return f"{first_line}\nid = {query}\nrunId = {RUN}\nbatch = 7"


@pytest.fixture(autouse=True)
def _no_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """A new context makes itself that of this process. The test's end restores the former one."""
    monkeypatch.setattr(TaskContext, "_taskContext", None)


@pytest.mark.parametrize(
    ("description", "name"),
    [
        (described("nightly"), "nightly"),
        (described("a (b) id = c"), "a (b) id = c"),
        (described(""), None),
        (described("nightly", "another query"), None),
        ("a job of foreachBatch", None),
        ("", None),
        (None, None),
    ],
)
def test_only_the_description_of_the_tasks_own_query_names_it(description: str | None, name: str | None) -> None:
    context = TaskContext()
    context._localProperties = {QUERY_ID: QUERY, BATCH_ID: "7", **({} if description is None else {DESCRIPTION: description})}
    assert query_name() == name


def test_without_a_task_or_a_stream_there_is_no_name() -> None:
    assert query_name() is None
    context = TaskContext()
    context._localProperties = {DESCRIPTION: described("nightly")}
    assert query_name() is None
