"""Sections, tables and links of a Markdown page, for the tests of documents."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

LINK = re.compile(r"\]\(([^)#:]*)#?([^):]*)\)")


def section(page: str, title: str) -> str:
    """The text under a heading, up to the next one."""
    match = re.search(rf"^##+ {re.escape(title)}\n(.*?)(?=^##|\Z)", page, re.MULTILINE | re.DOTALL)
    assert match is not None, title
    return match[1]


def rows(text: str) -> list[list[str]]:
    """The cells of all tables in a text, heads included."""
    lines = [line.strip("|") for line in text.splitlines() if line.startswith("|")]
    return [[cell.strip() for cell in line.split("|")] for line in lines if not line.startswith("---")]


def anchors(page: str) -> Iterator[str]:
    """Anchors that a link may name in a page: as GitHub makes them of headings."""
    for title in re.findall(r"^#+ (.+)$", page, re.MULTILINE):
        yield re.sub(r"[^\w -]", "", title.lower()).replace(" ", "-")


def broken_links(page: Path) -> list[str]:
    """Return links to missing files or headings."""
    return [f"{file}#{anchor}" for file, anchor in LINK.findall(page.read_text()) if not _leads_somewhere(page, file, anchor)]


def _leads_somewhere(page: Path, file: str, anchor: str) -> bool:
    target = page.parent / file if file else page
    return target.exists() and (not anchor or anchor in anchors(target.read_text()))


def long_lines(page: Path) -> list[int]:
    """The numbers of lines of prose and tables beyond 120 characters."""
    code, overlong = False, []
    for number, line in enumerate(page.read_text().splitlines(), 1):
        code ^= line.startswith("```")
        if not code and len(line) > 120:
            overlong.append(number)
    return overlong
