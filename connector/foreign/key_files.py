"""Files of keys: at first one for each batch, later one for many, so that a starting planner opens few.

    keys-N.arrow        of batch N
    keys-A-B.arrow      of all batches from A to B, merged from such files after Spark had committed them

A merged file is durable before the files that it replaces are deleted. After a crash, its name shows which files to leave out.
Merged files are merged again, like the runs of the window: each has at least twice as many keys as the next one. So files are
few, and a key is rewritten only a few times.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

MOST_FILES = 64  # files of committed batches: an object store takes 0.05 to 0.1 seconds to open one

_NAME = re.compile(r"keys-(\d+)(?:-(\d+))?\.arrow")


class Span(NamedTuple):
    """First and last batch of a file."""

    first: int
    last: int

    @property
    def name(self) -> str:
        return f"keys-{self.first}.arrow" if self.first == self.last else f"keys-{self.first}-{self.last}.arrow"


class KeyFile(NamedTuple):
    """A file with the number of its keys."""

    span: Span
    keys: int

    @property
    def is_single(self) -> bool:
        return self.span.first == self.span.last


def spans_of(names: Iterable[str]) -> set[Span]:
    matches = (_NAME.fullmatch(name) for name in names)
    return {Span(int(match[1]), int(match[2] or match[1])) for match in matches if match}


def outermost(spans: Iterable[Span]) -> tuple[list[Span], list[Span]]:
    """Return in order the spans that do not lie within others, and the spans that do."""
    outer: list[Span] = []
    within: list[Span] = []
    for span in sorted(spans, key=lambda span: (span.first, -span.last)):
        (within if outer and span.last <= outer[-1].last else outer).append(span)
    return outer, within


def missing_of(names: Iterable[str], spans: Iterable[Span], files: Container[int]) -> list[str]:
    """Return missing files whose keys are not in an existing file (`spans`), nor in the messages of the batches `files`."""
    existing = list(spans)
    return [
        span.name
        for span in spans_of(names)
        if not any(file.first <= span.first and span.last <= file.last for file in existing)
        and not (span.first == span.last and span.last in files)
    ]


def to_merge(files: Sequence[KeyFile]) -> Sequence[KeyFile]:
    """Return the newest files, in order; none if there are few files."""
    if len(files) <= MOST_FILES:
        return ()
    place, keys = len(files), 0
    while place and (len(files) - place < 2 or files[place - 1].is_single or files[place - 1].keys < 2 * keys):
        place -= 1
        keys += files[place].keys
    return files[place:]
