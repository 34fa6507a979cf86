"""`penstock --url a,b`: the output of commands for several brokers."""

from __future__ import annotations

import json
import subprocess
import sys

from penstock.broker_core.cli.broker_totals import added

from .helpers import INITIAL, Site


def penstock(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "penstock", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, stdin=subprocess.DEVNULL, check=False)


def test_queue_list_adds_up(site: Site) -> None:
    for letter, count in (("a", 3), ("b", 4)):
        site.send(letter, count)
    listed = penstock("queue", "list", "--url", site.urls(), "--json")
    (row,) = [row for row in json.loads(listed.stdout) if row["queue"] == site.queue]
    assert (row["available"], row["brokers"], row["type"]) == (7, site.urls().split(","), "fifo")
    (line,) = [line.split() for line in penstock("queue", "list", "--url", site.urls()).stdout.splitlines() if site.queue in line]
    assert (line[2], line[-1]) == ("7", "3")
    before = penstock("--json", f"--url={site.urls()}", "queue", "list")
    assert [row for row in json.loads(before.stdout) if row["queue"] == site.queue] == [row]


def test_status_tells_of_each(site: Site) -> None:
    status = json.loads(penstock("status", "--url", site.urls(), "--json").stdout)
    assert list(status) == site.urls().split(",")
    assert penstock("status", "--url", site.urls("ab")).stdout.count("--- grpc://") == 2


def test_a_queue_in_numbers_adds_up_where_it_is(site: Site) -> None:
    for letter, count in (("a", 3), ("b", 4)):
        site.send(letter, count)
    site.call("c", "queue.delete", queue=site.queue)
    statistics = json.loads(penstock("queue", "stat", site.queue, "--url", site.urls(), "--json").stdout)
    assert (statistics["available"], statistics["nextSequence"], statistics["brokers"]) == (7, 4, site.urls("ab").split(","))
    assert set(statistics["oldest"]) == set(site.urls("ab").split(","))
    output = penstock("queue", "stat", site.queue, "--url", site.urls()).stdout
    assert all(f"oldest at {url}" in output for url in site.urls("ab").split(","))
    refused = penstock("queue", "stat", "nowhere", "--url", site.urls())
    assert (refused.returncode, "there is no queue 'nowhere'" in refused.stderr) == (1, True)


def test_leases_and_what_waits_for_the_archive_are_those_of_all(site: Site) -> None:
    for letter, count in (("a", 2), ("b", 3)):
        site.send(letter, count)
    reader = site.reader("ab", lease="mine")
    site.drained(reader, INITIAL)
    leases = json.loads(penstock("lease", "list", "--url", site.urls(), "--json").stdout)
    mine = {lease["broker"] for lease in leases if lease["lease"] == "mine"}
    assert mine == set(site.urls("ab").split(","))
    status = json.loads(penstock("archive", "--url", site.urls(), "--json").stdout)
    (waiting,) = [row for row in status["queues"] if row["queue"] == site.queue]
    assert (waiting["unrecorded"], set(waiting["brokers"])) == (5, mine)


def test_what_is_no_number_is_told_of_each() -> None:
    expected = {
        "options": {"deliveryLimit": 5},
        "paused": False,
        "leases": ["x", "y"],
        "archive": {"lag": 2.5, "error": None},
        "process": 3,
    }
    two = {
        "options": {"deliveryLimit": 6},
        "paused": True,
        "leases": ["y"],
        "archive": {"lag": 1.5, "error": "full"},
        "process": 4,
    }
    assert added({"a": expected, "b": two}) == {
        "brokers": ["a", "b"],
        "options": {"a": {"deliveryLimit": 5}, "b": {"deliveryLimit": 6}},
        "paused": True,
        "leases": ["x", "y"],
        "archive": {"lag": 2.5, "error": "full"},
        "process": "3, 4",
    }
    assert added({"a": expected, "b": expected})["options"] == {"deliveryLimit": 5}  # rules are not added


def test_rows_that_one_of_them_keeps_for_ever_are_kept_for_ever() -> None:
    """The longest age counts; a broker without an archive has none."""
    day, week, ever = {"retention": 86400.0}, {"retention": 604800.0}, {"retention": None}
    assert added({"a": day, "b": week, "c": {}})["retention"] == 604800.0
    assert added({"a": day, "b": ever})["retention"] is None
    assert added({"a": ever, "b": day})["retention"] is None


def test_other_commands_want_one_broker_and_nobody_is_counted_twice(site: Site) -> None:
    refused = penstock("queue", "purge", site.queue, "--url", site.urls())
    assert (refused.returncode, "name one here" in refused.stderr) == (2, True)
    both = f"{site.broker('a').url},{site.broker('a').amqp_url}"
    refused = penstock("queue", "list", "--url", both)
    assert (refused.returncode, "one broker twice" in refused.stderr) == (2, True)
