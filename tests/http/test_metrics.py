"""Metrics (U3), checked with Prometheus' conventions and its own programs."""

from __future__ import annotations

import json
import re
import subprocess
import time
import urllib.request
from array import array
from pathlib import Path
from random import Random
from typing import Any

import pytest
from prometheus_client.core import Metric
from prometheus_client.openmetrics.parser import text_string_to_metric_families as of_openmetrics
from prometheus_client.parser import text_string_to_metric_families as of_text

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.broker_core.http_plane.plane import HttpPlane
from penstock.broker_core.http_plane.web import metrics
from penstock.broker_core.http_plane.web.counts import CountColumns, CountsText
from penstock.broker_core.security import Right
from penstock.broker_core.service.queue_counts import COLUMNS, LOSSES

from ..artemis import held_port
from ..flight.helpers import Reader, numbered, send
from ..flight.peers import Site, furnish
from ..programs import needs
from ..waiting import until
from .helpers import Http, basic

OPENMETRICS = "application/openmetrics-text; version=1.0.0"
EVIL = 'a "quoted\\queue"'  # characters that a label must escape


def values(families: list[Metric]) -> dict[str, float]:
    return {
        sample.name + "".join(f" {value}" for _, value in sorted(sample.labels.items())): sample.value
        for family in families
        for sample in family.samples
    }


@pytest.fixture(scope="module")
def used(broker: Broker) -> Broker:
    """A broker whose queues have messages in every state."""
    with Client(broker.url) as client:
        for queue in ("orders", EVIL):
            client.call("queue.declare", queue=queue)
            send(client, queue, numbered(10))
        reader = Reader(client, "orders")
        batch = reader.advance(messages=4)
        assert len(reader.read(batch)) == 4
        reader.settle(batch)
        reader.advance(messages=3)
        client.call("queue.purge", queue=EVIL)
        client.call("queue.pause", queue=EVIL)
    return broker


def test_both_formats_say_what_the_queues_have(used: Broker, http: Http) -> None:
    old, new = http.get("/metrics"), http.get("/metrics", accept=OPENMETRICS)
    assert old.headers["content-type"].startswith("text/plain; version=0.0.4")
    assert new.headers["content-type"].startswith("application/openmetrics-text; version=1.0.0")
    for samples in (values(list(of_text(old.body.decode()))), values(list(of_openmetrics(new.body.decode())))):
        assert samples["penstock_queue_messages orders available"] == 3
        assert samples["penstock_queue_messages orders acquired"] == 3
        assert samples["penstock_queue_enqueued_total orders"] == 10
        assert samples["penstock_queue_acknowledged_total orders"] == 4
        assert samples["penstock_queue_delivered_total orders"] == 7
        assert samples["penstock_queue_leases orders"] == 1
        assert 0 < samples["penstock_queue_oldest_message_age_seconds orders"] < 300
        assert samples[f"penstock_queue_oldest_message_age_seconds {EVIL}"] == 0
        assert samples[f"penstock_queue_removed_total {EVIL}"] == 10
        assert samples[f"penstock_queue_paused {EVIL}"] == 1
        assert samples["penstock_queues"] == 2
        assert samples["penstock_connections flight"] >= 0
        assert samples["penstock_journal_fsync_seconds_count"] >= 0
        assert samples["penstock_alarm disk-full"] == 0
        assert samples["process_resident_memory_bytes"] > 10 << 20


def test_the_documented_metrics_are_those_there_are(used: Broker, http: Http, repository: Path) -> None:
    text = (repository / "docs" / "http.md").read_text()
    documented = set(re.findall(r"^\| `(penstock_\w+)", text, re.MULTILINE))
    families = list(of_text(http.get("/metrics").body.decode()))
    names = {family.name + ("_total" if family.type == "counter" else "") for family in families}
    assert {name for name in names if name.startswith("penstock_")} == {name for name in documented if "_copy_" not in name}
    assert all(family.documentation.endswith(".") for family in families if family.name.startswith("penstock_"))


def test_a_scrape_that_accepts_nonsense_gets_text(http: Http) -> None:
    for accept in ("application/openmetrics-text; version=one", 'text/plain; version="', ", , ;", "*/*"):
        assert http.get("/metrics", accept=accept).status == 200, accept


def test_queues_beyond_the_limit_are_one_sum(site: Site) -> None:
    columns_ = ["available", "acquired", "delayed", "deferred", "staged", "oldest"]
    header = {"queues": ["a", "b", "c"], "time": 10_000_000, "columns": columns_}
    table = array("q", [1, 5, 2, 0, 0, 0, 0, 0, 2, 0, 0, 1, 0, 0, 0, 4_000_000, 0, 6_000_000]).tobytes()
    names, columns, rest = CountColumns(header, table).limited(1)
    assert (names, rest) == (["b", ""], 2)
    sums = {name: column.tolist() for name, column in columns.items()}
    waiting = {"available": [5, 3], "acquired": [0, 0], "delayed": [0, 2], "deferred": [0, 1]}
    assert sums == {**waiting, "staged": [0, 0], "oldest": [0, 4_000_000]}
    assert CountColumns(header, table).limited(3)[0] == ["a", "b", "c"]
    assert CountColumns(header, table).limited(0)[1]["available"].tolist() == [8]


def test_thousands_of_queues_with_messages_are_one_sum() -> None:
    """Their arrivals, added up, are more than 64 bits hold."""
    names, now = [f"q{number}" for number in range(10_000)], int(time.time() * 1e6)
    header = {"queues": names, "time": now, "columns": ["available", "acquired", "delayed", "deferred", "staged", "oldest"]}
    table = array("q", [1] * 10_000 + [0] * 40_000 + [now - number for number in range(10_000)]).tobytes()
    _, columns, rest = CountColumns(header, table).limited(1000)
    assert (rest, columns["available"][-1], columns["oldest"][-1]) == (9_000, 9_000, now - 9_999)


def test_a_scrape_that_forms_what_has_changed_says_what_one_that_forms_all_says() -> None:
    random = Random(1)
    names, numbers = ["a", EVIL, "b"], {column: array("q", [0, 0, 0]) for column in COLUMNS}
    text = metrics.QueueText()
    for time_us in range(100):
        if random.random() < 0.1:
            names = random.sample(["a", EVIL, "b", "c", ""], 3)
        for column in random.sample(COLUMNS, 4):
            numbers[column] = array("q", [value + random.randrange(2) for value in numbers[column]])
        for total_in_help in (False, True):
            again = metrics.QueueText().form(time_us, names, numbers, LOSSES, total_in_help=total_in_help)
            assert text.form(time_us, names, numbers, LOSSES, total_in_help=total_in_help) == again


def test_counts_that_are_formed_where_they_have_changed_are_those_there_are() -> None:
    random = Random(1)
    names, table, text = ["a", EVIL, "b"], [0] * 6, CountsText()
    for time_us in range(100):
        if random.random() < 0.1:
            names = random.sample(["a", EVIL, "b", "c", "é😀"], 3)
        table[random.randrange(6)] += random.randrange(2)
        header = {"queues": names, "time": time_us, "columns": ["available", "bytes"]}
        answer = json.loads(text.form(CountColumns(header, array("q", table).tobytes())))
        assert answer == {"time": time_us, "queues": names, "available": table[:3], "bytes": table[3:]}


def test_a_scrape_needs_a_login_and_shows_what_its_user_may_know_of(site: Site, plane: HttpPlane, guarded: Http) -> None:
    """W3: users without a right on a queue do not see its name."""
    furnish(site, "secret")
    site.user("alice", Right.BROWSE, queue="mine")
    site.user("root", *Right)
    assert guarded.get("/metrics").status == 401
    for path in ("/metrics", "/api/v1/counts", "/api/v1/history?queue=secret", "/api/v1/history"):
        assert b"secret" not in guarded.get(path, authorization=basic("alice")).body, path
    assert b"secret" in guarded.get("/metrics", authorization=basic("root")).body
    assert guarded.get("/api/v1/counts", authorization=basic("root")).json["queues"] == ["secret"]
    assert guarded.get("/api/v1/history", authorization=basic("alice")).json["queues"].keys() == {""}


def test_counts_and_history_are_columns(used: Broker, http: Http) -> None:
    counts = http.get("/api/v1/counts").json
    at = counts["queues"].index("orders")
    assert (counts["available"][at], counts["acquired"][at], counts["acknowledged"][at]) == (3, 3, 4)

    def sampled() -> Any:
        answer = http.get("/api/v1/history?queue=orders&queue=nowhere").json
        return answer if answer["queues"].get("orders", {}).get("depth") else None

    history = until(sampled, "the queue has a sample")
    assert history["period"] == 10
    assert set(history["queues"]) == {"orders"}
    assert history["queues"]["orders"].keys() == {"depth", "enqueued", "delivered", "acknowledged"}


def test_promtool_finds_nothing_to_say(used: Broker, http: Http) -> None:
    """Prometheus's conventions for names, units and help texts, held by its own program."""
    done = subprocess.run(
        [needs("promtool", "prometheus"), "check", "metrics"], input=http.get("/metrics").body, capture_output=True, check=False
    )
    assert (done.returncode, done.stdout + done.stderr) == (0, b"")


def test_a_real_prometheus_scrapes_and_answers(used: Broker, tmp_path: Path) -> None:
    address = used.http_url.partition("://")[2]
    config = tmp_path / "prometheus.yml"
    config.write_text(
        "scrape_configs:\n- job_name: penstock\n  scrape_interval: 200ms\n  scrape_timeout: 200ms\n"
        f"  static_configs:\n  - targets: ['{address}']\n"
    )
    command = [
        needs("prometheus", "prometheus"),
        f"--config.file={config}",
        f"--storage.tsdb.path={tmp_path / 'tsdb'}",
        "--log.level=error",
    ]
    log = tmp_path / "prometheus.log"
    with log.open("wb") as output:
        port = held_port(output)  # it cannot choose a free port and report it
        process = subprocess.Popen([*command, f"--web.listen-address=127.0.0.1:{port}"], stdout=output, stderr=output)
    try:

        def scraped() -> dict[str, str]:
            assert process.poll() is None, log.read_text()
            depths = _query(port, "penstock_queue_messages{state='available'}")
            return depths if depths.get("orders") == "3" else {}

        depths = until(scraped, lambda: f"Prometheus has the counts: {log.read_text()}", limit_s=60)
        assert depths == {"orders": "3", EVIL: "0"}
        assert _query(port, "penstock_queue_acknowledged_total")["orders"] == "4"
    finally:
        process.kill()
        process.wait()


def _query(port: int, query: str) -> dict[str, str]:
    url = f"http://127.0.0.1:{port}/api/v1/query?" + urllib.parse.urlencode({"query": query})
    try:
        with urllib.request.urlopen(url, timeout=10) as answer:
            rows = json.load(answer)["data"]["result"]
    except OSError:
        return {}
    return {row["metric"]["queue"]: row["value"][1] for row in rows}
