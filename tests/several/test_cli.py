"""`penstock --url a,b`: what commands say of several brokers."""

from __future__ import annotations

import json
import subprocess
import sys

from .helpers import Site


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


def test_status_tells_of_each(site: Site) -> None:
    found = json.loads(penstock("status", "--url", site.urls(), "--json").stdout)
    assert list(found) == site.urls().split(",")
    assert penstock("status", "--url", site.urls("ab")).stdout.count("--- grpc://") == 2


def test_other_commands_want_one_broker_and_nobody_is_counted_twice(site: Site) -> None:
    refused = penstock("queue", "stat", site.queue, "--url", site.urls())
    assert (refused.returncode, "name one here" in refused.stderr) == (2, True)
    both = f"{site.broker('a').url},{site.broker('a').amqp_url}"
    refused = penstock("queue", "list", "--url", both)
    assert (refused.returncode, "one broker twice" in refused.stderr) == (2, True)
