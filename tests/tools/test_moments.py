"""Times as people write them: one parser, with the current time and the zone as arguments."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime, timezone, tzinfo
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from penstock.broker_core import moments
from penstock.broker_core.errors import InvalidRequest
from penstock.jobs import redrive, replay
from penstock.jobs.arguments import fix_times

from .pages import rows, section

UTC, ZURICH, SAO_PAULO, HAVANA = timezone.utc, *map(ZoneInfo, ("Europe/Zurich", "America/Sao_Paulo", "America/Havana"))
NOW = "2026-11-28T14:30:00Z"
SPRING = "2026-03-29T12:00:00Z"  # the day on which Zurich has 23 hours
AUTUMN = "2026-10-25T12:00:00Z"  # the day on which Zurich has 25 hours


def at(text: str) -> datetime:
    return datetime.fromisoformat(text.replace("Z", "+00:00"))


@pytest.mark.parametrize(
    ("text", "zone", "now", "written"),
    [
        ("now", UTC, NOW, NOW),
        (" NOW ", ZURICH, NOW, NOW),
        ("-2h", UTC, NOW, "2026-11-28T12:30:00Z"),
        ("-2H", ZURICH, NOW, "2026-11-28T12:30:00Z"),
        ("-30m", UTC, NOW, "2026-11-28T14:00:00Z"),
        ("-90s", UTC, NOW, "2026-11-28T14:28:30Z"),
        ("-1.5h", UTC, NOW, "2026-11-28T13:00:00Z"),
        ("-0.5s", UTC, NOW, "2026-11-28T14:29:59.5Z"),
        ("-7d", UTC, NOW, "2026-11-21T14:30:00Z"),
        # A day has 24 hours in a time ago, and is a day of the zone in a name.
        ("-1d", ZURICH, SPRING, "2026-03-28T12:00:00Z"),
        ("-12h", ZURICH, SPRING, "2026-03-29T00:00:00Z"),
        ("today", UTC, NOW, "2026-11-28T00:00:00Z"),
        ("yesterday", UTC, NOW, "2026-11-27T00:00:00Z"),
        ("Yesterday", ZURICH, NOW, "2026-11-26T23:00:00Z"),
        ("today", ZURICH, SPRING, "2026-03-28T23:00:00Z"),
        ("yesterday", ZURICH, "2026-03-30T12:00:00Z", "2026-03-28T23:00:00Z"),
        ("today", ZURICH, "2026-03-30T12:00:00Z", "2026-03-29T22:00:00Z"),
        ("today", ZURICH, AUTUMN, "2026-10-24T22:00:00Z"),
        ("yesterday", ZURICH, "2026-10-26T12:00:00Z", "2026-10-24T22:00:00Z"),
        ("today", ZURICH, "2026-10-26T12:00:00Z", "2026-10-25T23:00:00Z"),
        ("today", ZURICH, "2026-11-28T23:30:00Z", "2026-11-28T23:00:00Z"),
        ("today", UTC, "2026-11-28T23:30:00Z", "2026-11-28T00:00:00Z"),
        ("today Europe/Zurich", UTC, "2026-11-28T23:30:00Z", "2026-11-28T23:00:00Z"),
        ("yesterday+05:30", UTC, NOW, "2026-11-26T18:30:00Z"),
        ("yesterday Z", ZURICH, NOW, "2026-11-27T00:00:00Z"),
        ("2026-11-25", UTC, NOW, "2026-11-25T00:00:00Z"),
        ("20261125", UTC, NOW, "2026-11-25T00:00:00Z"),
        ("2026-11-25", ZURICH, NOW, "2026-11-24T23:00:00Z"),
        ("2026-11-25 Europe/Zurich", UTC, NOW, "2026-11-24T23:00:00Z"),
        ("2026-11-25 utc", ZURICH, NOW, "2026-11-25T00:00:00Z"),
        ("2026-11-25-05:00", UTC, NOW, "2026-11-25T05:00:00Z"),
        ("2026-11-25T10:00", UTC, NOW, "2026-11-25T10:00:00Z"),
        ("2026-11-25t10:00z", ZURICH, NOW, "2026-11-25T10:00:00Z"),
        ("2026-11-25 10:00", ZURICH, NOW, "2026-11-25T09:00:00Z"),
        ("2026-07-25 10:00", ZURICH, NOW, "2026-07-25T08:00:00Z"),
        ("2026-11-25T10:00:05.25+01:00", UTC, NOW, "2026-11-25T09:00:05.25Z"),
        ("2026-11-25T10:00:00.123456789Z", UTC, NOW, "2026-11-25T10:00:00.123456Z"),
        ("20261125T100000Z", UTC, NOW, "2026-11-25T10:00:00Z"),
        ("2026-11-25 10:00 America/New_York", UTC, NOW, "2026-11-25T15:00:00Z"),
        ("1969-12-31T23:59:59.999999Z", UTC, NOW, "1969-12-31T23:59:59.999999Z"),
        ("1772323200123", ZURICH, NOW, "2026-03-01T00:00:00.123Z"),
        # Clocks in Zurich show no 2:30 in spring, and show it twice in autumn.
        ("2026-03-29T01:59", ZURICH, NOW, "2026-03-29T00:59:00Z"),
        ("2026-03-29T02:30", ZURICH, NOW, "2026-03-29T01:30:00Z"),
        ("2026-03-29T03:00", ZURICH, NOW, "2026-03-29T01:00:00Z"),
        ("2026-10-25T02:30", ZURICH, NOW, "2026-10-25T00:30:00Z"),
        ("2026-10-25T03:00", ZURICH, NOW, "2026-10-25T02:00:00Z"),
        # Days without a midnight, and with two.
        ("2018-11-04", SAO_PAULO, NOW, "2018-11-04T03:00:00Z"),
        ("2026-11-01", HAVANA, NOW, "2026-11-01T04:00:00Z"),
    ],
)
def test_a_text_is_a_time(text: str, zone: tzinfo, now: str, written: str) -> None:
    moment = moments.parse(text, at(now), zone)
    assert moments.written(moment.micros) == written
    assert moment.is_relative == text.strip().lower().startswith(("now", "-", "today", "yesterday"))


@pytest.mark.parametrize(
    "text",
    [
        *("", " ", "-", "-2", "-h", "--2h", "-2w", "2h", "+2h", "-2h Z", "-2h Europe/Zurich", "-1e3h", "-1e999d", "-99999999d"),
        *("tomorrow", "yesterdayish", "to day", "now Z", "now+01:00", "noon"),
        *("2026", "2026-11", "2026-13-01", "2026-02-30", "26-11-25", "2026-11-25T", "2026-11-25T10", "2026-11-25T24:01"),
        *("2026-11-25T10:60", "2026-11-25T10:00+25:00", "2026-11-25 today", "2026-11-2510:00", "٢٠٢٦-١١-٢٥", "1772323200"),
        *("2026-11-25 Europe", "2026-11-25 Mars/Base", "2026-11-25 ../../etc/passwd", "2026-11-25 /etc/passwd", "Europe/Zurich"),
        *("0001-01-01T00:00+10:00", "9999-12-31T23:59-10:00", "2026-11-25" + " " * 1_000_000 + "Z", "-" + "9" * 1_000_000 + "d"),
    ],
)
def test_any_other_text_is_refused(text: str) -> None:
    with pytest.raises(InvalidRequest, match=r"^until: '.*is not a time; it must be a time such as -2h") as refusal:
        moments.parse_bounds(None, text, at(NOW))
    assert moments.FORMS in str(refusal.value)
    assert len(str(refusal.value)) < 500


def test_the_errors_name_only_accepted_forms() -> None:
    for form in (
        "-2h",
        "-30m",
        "-90s",
        "-7d",
        "now",
        "today",
        "yesterday",
        "2026-11-25",
        "2026-11-25T10:00",
        "2026-11-25T10:00:00.5",
    ):
        assert form in moments.FORMS
        moments.parse(form, at(NOW), UTC)
    for zone in ("Z", "+01:00", "Europe/Zurich"):
        assert zone in moments.FORMS
        moments.parse(f"2026-11-25 {zone}", at(NOW), UTC)


@pytest.mark.parametrize("main", [replay.main, redrive.main])
def test_the_flags_of_jobs(main: Callable[[list[str]], int], capsys: pytest.CaptureFixture[str]) -> None:
    """Wrong flags are refused before Spark starts."""
    job = ["--url", "grpc://127.0.0.1:1", "--queue", "q", *(["--to", "t"] if main is replay.main else [])]
    for words in (["--since", "tomorrow"], ["--until", "-2"]):
        with pytest.raises(SystemExit):
            main([*job, *words])
        assert f"argument {words[0]}: '{words[1]}' is not a time; it must be {moments.FORMS}" in capsys.readouterr().err
    assert main([*job, "--since", "-2h", "--until", "-3h"]) == 1
    assert re.search(r"error: since 2.*Z is not before until 2.*Z: no message can match", capsys.readouterr().err)


@pytest.mark.parametrize("module", [replay, redrive])
def test_a_job_reads_both_times_with_one_clock(module: Any) -> None:
    job = ["--url", "grpc://127.0.0.1:1", "--queue", "q", *(["--to", "t"] if module is replay else [])]
    for words in (["--since", "-2h", "--until", "now"], ["--since=-2h", "--until=now"]):
        args = module._parser().parse_args([*job, *words])
        assert (args.since, args.until) == ("-2h", "now"), "a stream of replay stores them in its checkpoint"
        assert fix_times(args, at(NOW)) == " since 2026-11-28T12:30:00Z until 2026-11-28T14:30:00Z"
        assert (args.since, args.until) == ("2026-11-28T12:30:00Z", NOW)


def test_the_page_describes_accepted_texts(repository: Path) -> None:
    described = section((repository / "docs" / "spark.md").read_text(), "startingTimestamp, endingTimestamp")
    texts = [text for row in rows(described)[1:] for text in re.findall("`(.*?)`", row[0])]
    texts += re.findall("`([^`]*(?:Z|[+]01:00|/Zurich))`", described)
    assert len(texts) == 16
    for text in texts:
        moments.parse(text, at(NOW), UTC)


def test_bounds_are_in_utc_and_in_order() -> None:
    assert moments.parse_bounds(None, None, at(NOW)) == (None, None)
    since, until = moments.parse_bounds("yesterday", "-2h", at(NOW))
    assert moments.described(since, until) == " since 2026-11-27T00:00:00Z until 2026-11-28T12:30:00Z"
    assert (moments.described(None, None), moments.described(None, until)) == ("", " until 2026-11-28T12:30:00Z")
    for first, last in (("now", "-2h"), ("today", "today")):
        with pytest.raises(InvalidRequest, match=r"since 2026-11-28T.*Z is not before until 2026-11-28T.*Z"):
            moments.parse_bounds(first, last, at(NOW))
