"""Every page for people: its links lead somewhere, and its lines end at 120 characters."""

from __future__ import annotations

from pathlib import Path

import pytest

from .pages import broken_links, long_lines

PAGES = ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "docs/queues.md", "docs/spark.md")


@pytest.mark.parametrize("name", PAGES)
def test_links_lead_somewhere_and_lines_end(name: str, repository: Path) -> None:
    assert broken_links(repository / name) == []
    assert long_lines(repository / name) == []
