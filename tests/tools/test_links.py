"""Every page for people: its links lead somewhere, and its lines end at 120 characters."""

from __future__ import annotations

from pathlib import Path

from .pages import broken_links, long_lines


def pages(repository: Path) -> list[Path]:
    """All but those of `docs/bench`, which are made from measurements."""
    paths = [*repository.glob("*.md"), *(repository / "docs").rglob("*.md")]
    return [page for page in paths if page.parent.name != "bench"]


def test_every_link_leads_somewhere(repository: Path) -> None:
    broken = {str(page.relative_to(repository)): broken_links(page) for page in pages(repository)}
    assert {name: links for name, links in broken.items() if links} == {}
    assert len(broken) > 8


def test_every_line_ends(repository: Path) -> None:
    long = {str(page.relative_to(repository)): long_lines(page) for page in pages(repository)}
    assert {name: lines for name, lines in long.items() if lines} == {}
