"""The lines of a job about its query."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest

from penstock.jobs import progress

KEPT, BATCHES = 100, 1_000


class Query:
    """A query as Spark shows it: of its progress the last hundred, and each look at it finds 30 more."""

    def __init__(self) -> None:
        self.done = 0
        self.ended = False

    @property
    def isActive(self) -> bool:
        self.done += 30
        return self.done < BATCHES

    @property
    def recentProgress(self) -> list[SimpleNamespace]:
        entries = (
            {"timestamp": f"{batch:06}", "batchId": batch, "numInputRows": 1, "durationMs": {}}
            for batch in range(max(0, self.done - KEPT), self.done)
        )
        return [SimpleNamespace(json=json.dumps(entry)) for entry in entries]

    def awaitTermination(self) -> None:
        self.ended = True


def test_each_batch_is_told_once_and_no_more_is_kept_than_spark_keeps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOOK_S", 0.0)
    query: Any = Query()
    looks, numbers = progress._batches(query), []
    for batch in looks:
        numbers.append(batch["batchId"])
        assert len(looks.gi_frame.f_locals["seen"]) <= KEPT  # type: ignore[attr-defined]
    assert numbers == list(range(query.done))
    query, lines = Query(), []
    assert progress.follow(query, lines.append) == len(lines) == query.done
    assert query.ended
