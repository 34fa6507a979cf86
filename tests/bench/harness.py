"""The harness of all rows: their folder, their repeats and their results."""

from __future__ import annotations

import gc
import os
import shutil
import signal
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

MIB = 1 << 20
WARM_UPS = 2  # uncounted repeats of each side, until its JVM has compiled the hot code


@dataclass
class Line:
    """One line of the table: a ratio of two sides, or a plain figure."""

    row: str
    what: str
    against: str  # the other side of the ratio; empty for a plain figure
    target: float
    aim: float | None
    at_least: bool  # else at most
    unit: str  # of `ours` and `other`
    ours: list[float]
    other: list[float] = field(default_factory=list)
    note: str = ""
    more: dict[str, list[float]] = field(default_factory=dict)  # further raw figures, name with unit → one a repeat

    @property
    def ratios(self) -> list[float]:
        return [mine / theirs for mine, theirs in zip(self.ours, self.other, strict=True)] if self.other else self.ours

    @property
    def value(self) -> float:
        return statistics.median(self.ratios)

    def reaches(self, mark: float | None) -> bool:
        return mark is not None and (self.value >= mark if self.at_least else self.value <= mark)

    def to_json(self) -> dict[str, Any]:
        figures = {
            "ratios": self.ratios,
            "value": self.value,
            "met": self.reaches(self.target),
            "aimMet": self.reaches(self.aim) if self.aim is not None else None,
        }
        return {**asdict(self), **figures}


class Bench:
    """Argument of every row: a folder on the measured disk, the number of repeats, and an output."""

    def __init__(self, work: Path, *, repeats: int = 5, scale: float = 1.0) -> None:
        self.work = work
        self.repeats = repeats
        self.scale = scale
        self._folders = 0

    def count(self, full: int, least: int = 1) -> int:
        """A number, of messages for instance, scaled down by `--quick`."""
        return max(least, int(full * self.scale))

    def folder(self) -> Path:
        """A name for a new folder; not made yet."""
        self._folders += 1
        self.work.mkdir(parents=True, exist_ok=True)
        return self.work / f"{self._folders:03d}"

    def remove(self, folder: Path) -> None:
        shutil.rmtree(folder, ignore_errors=True)

    def say(self, text: str) -> None:
        print(f"  {text}", file=sys.stderr, flush=True)

    @contextmanager
    def doing(self, work: str) -> Iterator[None]:
        started = time.perf_counter()
        yield
        self.say(f"{work}: {time.perf_counter() - started:.1f} s")

    def pairs(
        self,
        unit: str,
        ours: Callable[[int], float],
        *others: Callable[[int], float],
        repeats: int | None = None,
        turned: bool = False,
    ) -> list[list[float]]:
        """Run A B A B …: one list of figures for each of `ours` and `others`.

        `turned`: A B B A …. Either a run leaves work to the next one, such as files that the disk has yet to write. Or the JVM
        still becomes faster from run to run.
        """
        figures: list[list[float]] = [[] for _ in range(1 + len(others))]
        count = repeats or self.repeats
        for i in range(count):
            both = list(zip(figures, (ours, *others), strict=True))
            for side, run in reversed(both) if turned and i % 2 else both:
                gc.collect()
                side.append(run(i))
            self.say(f"{i + 1}/{count}: " + " against ".join(f"{side[-1]:,.4g}" for side in figures) + f" {unit}")
        return figures


def cpu_of_family(pid: int) -> float:
    """Return the CPU seconds of a process and its descendants, including ended ones."""
    ticks = _ticks()
    return sum(ticks[number][1] for number in _family(pid, ticks)) / os.sysconf("SC_CLK_TCK")


@contextmanager
def standing_still(pid: int) -> Iterator[None]:
    """Stop a process and its descendants for the block, so that they take no CPU time from the measured side."""
    stopped: list[int] = []
    try:
        while new := [number for number in _family(pid, _ticks()) if number not in stopped]:  # includes newly forked processes
            _signal(new, signal.SIGSTOP)
            stopped += new
        yield
    finally:
        _signal(stopped, signal.SIGCONT)


def _signal(pids: list[int], number: signal.Signals) -> None:
    for pid in pids:
        with suppress(ProcessLookupError):  # it has ended meanwhile
            os.kill(pid, number)


def _ticks() -> dict[int, tuple[int, int]]:
    """Each process, with its parent and its CPU time."""
    ticks: dict[int, tuple[int, int]] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with suppress(OSError):  # it has ended meanwhile
            fields = stat.read_text().rpartition(")")[2].split()
            ticks[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
    return ticks


def _family(pid: int, ticks: dict[int, tuple[int, int]]) -> list[int]:
    """A process and all below it."""
    family, new = list[int](), [pid]
    while new:
        family += new
        new = [number for number, (parent, _) in ticks.items() if parent in new]
    return family


class Stopwatch:
    """`with Stopwatch() as watch: …`, then `watch.seconds`."""

    seconds = 0.0

    def __enter__(self) -> Stopwatch:
        self._started = time.perf_counter()
        return self

    def __exit__(self, *_: object) -> None:
        self.seconds = time.perf_counter() - self._started
