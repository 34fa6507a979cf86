"""Every page for people: its links lead somewhere, and its lines end at 120 characters."""

from __future__ import annotations

from pathlib import Path

from .pages import broken_links, long_lines

#: Made from measurements (`docs/bench`), or still in long lines.
OTHERS = ("bench", "ARCHITECTURE.md")


def pages(repository: Path) -> list[Path]:
    found = [*repository.glob("*.md"), *(repository / "docs").rglob("*.md")]
    return [page for page in found if not set(OTHERS) & set(page.parts)]


def test_every_link_leads_somewhere(repository: Path) -> None:
    broken = {str(page.relative_to(repository)): broken_links(page) for page in pages(repository)}
    assert {name: links for name, links in broken.items() if links} == {}
    assert len(broken) > 8


def test_every_line_ends(repository: Path) -> None:
    long = {str(page.relative_to(repository)): long_lines(page) for page in pages(repository)}
    assert {name: lines for name, lines in long.items() if lines} == {}
