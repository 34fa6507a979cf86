"""docs/errors.md lists the codes of broker_core/errors.py, which stay as they are."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from penstock.broker_core import errors

from .pages import rows


def test_the_page_lists_every_code_and_what_to_do(repository: Path) -> None:
    lines = rows((repository / "docs" / "errors.md").read_text())[1:]
    assert [code.strip("`") for code, _, _ in lines] == sorted_as_defined()
    assert all(meaning and way_out for _, meaning, way_out in lines)


def sorted_as_defined() -> list[str]:
    """The codes in the order of the classes in the module."""
    kinds = [kind for kind in vars(errors).values() if isinstance(kind, type) and issubclass(kind, errors.PenstockError)]
    return [kind.code for kind in kinds]


def test_each_error_has_a_code_of_its_own() -> None:
    codes = sorted_as_defined()
    assert len(set(codes)) == len(codes)
    assert all(re.fullmatch(r"[A-Z]+(_[A-Z]+)*", code) for code in codes)


@pytest.mark.parametrize("code", ["QUEUE_NOT_FOUND", "INVALID_SELECTOR", "DAMAGED_MESSAGES", "WRONG_PORT"])
def test_a_code_makes_the_same_error_on_the_other_side(code: str) -> None:
    sent = errors.BY_CODE[code]("what happened")
    got = errors.from_json(sent.to_json())
    assert (type(got), str(got)) == (errors.BY_CODE[code], "what happened")
