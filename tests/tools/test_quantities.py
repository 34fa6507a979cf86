"""Sizes and times with units: settings and Spark's options accept the same texts."""

from __future__ import annotations

import pytest

from penstock.broker_core.quantities import SIZES, TIMES, parse
from penstock.broker_core.settings.keys import Settings
from penstock.connector.options import Options


@pytest.mark.parametrize("text", ["64m", "64mb", "64 MiB", "67108864", " 64 mib "])
def test_a_size(text: str) -> None:
    assert parse(text, SIZES) == Settings(data="d", segment_bytes=text).segment_bytes == 64 << 20
    assert Options({"maxBytesPerTrigger": text})["maxBytesPerTrigger"] == 64 << 20


@pytest.mark.parametrize("text", ["90m", "1.5 h", "5400s", "5_400"])
def test_a_time(text: str) -> None:
    assert parse(text, TIMES) == Settings(data="d", archive_after_s=text).archive_after_s == 5400
    assert Options({"leaseTimeout": text})["leaseTimeout"] == 5400


@pytest.mark.parametrize("text", ["", "m", "-1", "1 mb", "1e3", "١"])
def test_a_text_that_is_no_time(text: str) -> None:
    with pytest.raises(ValueError):
        parse(text, TIMES)
