"""Files of keys: at first one of each batch, later one of many, so that a planner that starts opens few.

    keys-N.arrow        of batch N
    keys-A-B.arrow      of all batches from A to B, made of such files when Spark had committed them

The second kind is durable before what it is made of is deleted, so after a crash a key may be in files of both kinds. Its name
says which files are to be left out then. Such files become one, too, as the window's runs do: each has at least twice as many
keys as the next, so that they are few, and a key is written a few times and no more.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Sequence
from typing import NamedTuple

#: Files of keys of batches that Spark has committed, at most. An object store takes 0.05 to 0.1 seconds to open one.
MOST_FILES = 64

_NAME = re.compile(r"keys-(\d+)(?:-(\d+))?\.arrow")


class Span(NamedTuple):
    """The batches whose keys a file has: one, or several, the last one included."""

    first: int
    last: int

    @property
    def name(self) -> str:
        """The file's name."""
        return f"keys-{self.first}.arrow" if self.first == self.last else f"keys-{self.first}-{self.last}.arrow"


class KeyFile(NamedTuple):
    """A file of keys, and how many it has."""

    span: Span
    keys: int

    @property
    def single(self) -> bool:
        """True for the file of one batch."""
        return self.span.first == self.span.last


def spans_of(names: Iterable[str]) -> set[Span]:
    """Return the spans of the files of keys among these names."""
    found = (_NAME.fullmatch(name) for name in names)
    return {Span(int(match[1]), int(match[2] or match[1])) for match in found if match}


def outermost(spans: Iterable[Span]) -> tuple[list[Span], list[Span]]:
    """Return the spans in order, and apart from them those that lie within others."""
    chosen: list[Span] = []
    within: list[Span] = []
    for span in sorted(spans, key=lambda each: (each.first, -each.last)):
        (within if chosen and span.last <= chosen[-1].last else chosen).append(span)
    return chosen, within


def missing_of(names: Iterable[str], spans: Iterable[Span], files: Container[int]) -> list[str]:
    """Return those of these files of keys that are not there, and whose keys are in no other file.

    `spans` are those that are there, `files` the batches whose messages are: of these the keys can be made again.
    """
    there = list(spans)
    wanted = {span.name: span for span in spans_of(names)}
    covered = {
        name for name, span in wanted.items() if any(each.first <= span.first and span.last <= each.last for each in there)
    }
    return [name for name, span in wanted.items() if name not in covered and not (span.first == span.last and span.last in files)]


def to_merge(files: Sequence[KeyFile]) -> Sequence[KeyFile]:
    """Return those files, the newest of them all, that are to be written as one; none where they are few. The oldest is first."""
    if len(files) <= MOST_FILES:
        return ()
    place, keys = len(files), 0
    while place and (len(files) - place < 2 or files[place - 1].single or files[place - 1].keys < 2 * keys):
        place -= 1
        keys += files[place].keys
    return files[place:]
