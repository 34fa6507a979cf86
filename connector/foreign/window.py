"""The window of earlier messages: their keys in sorted runs, each at least twice as long as the next."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Numbers = npt.NDArray[np.uint64]


class _KeyRun(NamedTuple):
    """Keys of neighbouring batches, ascending by their first half, and the batch of each."""

    left: Numbers
    right: Numbers
    batch: npt.NDArray[np.int64]


class Window:
    """Keys of at least the last `limit` messages with an id, and of up to three times as many."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._runs: list[_KeyRun] = []

    def __len__(self) -> int:
        return sum(len(run.left) for run in self._runs)

    def clear(self) -> None:
        self._runs = []

    @property
    def oldest(self) -> int | None:
        return int(self._runs[0].batch.min()) if self._runs else None

    def find(self, left: Numbers, right: Numbers) -> npt.NDArray[np.int64]:
        """Return the earlier batch of each message; 0 if it is new."""
        import numpy as np

        batches = np.zeros(len(left), np.int64)
        order = np.argsort(left)  # searches in neighbouring memory take less than a third of the time
        left, right = left[order], right[order]
        for run in self._runs:
            place = np.minimum(np.searchsorted(run.left, left), len(run.left) - 1)
            hit = (run.left[place] == left) & (run.right[place] == right)
            batches[order[hit]] = run.batch[place[hit]]
        return batches

    def add(self, batch: int | npt.NDArray[np.int64], left: Numbers, right: Numbers) -> None:
        """`batch`: of all keys, or of each; batches ascend. The oldest keys are removed."""
        import numpy as np

        if not len(left):
            return
        order = np.argsort(left)  # no two are the same
        batches = np.full(len(left), batch, np.int64) if isinstance(batch, int) else batch[order]
        self._runs.append(_KeyRun(left[order], right[order], batches))
        while len(self._runs) > 1 and len(self._runs[-2].left) < 2 * len(self._runs[-1].left):
            self._runs[-2:] = [_merged(*self._runs[-2:])]
        while len(self._runs) > 1 and len(self) - len(self._runs[0].left) >= self._limit:
            del self._runs[0]
        if len(self) > 3 * self._limit:
            self._runs = [_newest(run, self._limit) for run in self._runs]

    def of(self, first: int, last: int) -> tuple[Numbers, Numbers, npt.NDArray[np.int64]]:
        import numpy as np

        chosen = [(run, (run.batch >= first) & (run.batch <= last)) for run in self._runs]
        parts = [[column[some] for column in run] for run, some in chosen]
        kinds = np.uint64, np.uint64, np.int64
        left, right, batch = (np.concatenate([np.empty(0, kind), *(part[n] for part in parts)]) for n, kind in enumerate(kinds))
        return left, right, batch


def _merged(first: _KeyRun, second: _KeyRun) -> _KeyRun:
    import numpy as np

    left = np.concatenate([first.left, second.left])
    order = np.argsort(left, kind="stable")
    both: Any = zip(first[1:], second[1:], strict=True)
    return _KeyRun(left[order], *(np.concatenate(pair)[order] for pair in both))


def _newest(run: _KeyRun, count: int) -> _KeyRun:
    """Keep at least `count` keys of the newest batches."""
    import numpy as np

    if len(run.left) <= count:
        return run
    least = np.sort(run.batch)[-count]
    newest = run.batch >= least
    return _KeyRun(run.left[newest], run.right[newest], run.batch[newest])
