"""Alert rules and the board in conf/: they ask for metrics that there are."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path

import pytest

from ..programs import needs


def documented(repository: Path) -> set[str]:
    """The names of the metrics in docs/http.md, and the parts of histograms. A test compares the page with a broker."""
    listed = set(re.findall(r"^\| `(penstock_\w+)` \|", (repository / "docs" / "http.md").read_text(), re.MULTILINE))
    return listed | {f"{name}_bucket" for name in listed if name.endswith("_seconds")}


@pytest.mark.parametrize("name", ["alerts.yml", "grafana.json"])
def test_every_metric_that_is_asked_for_is_there(repository: Path, name: str) -> None:
    """U3"""
    asked = set(re.findall(r"\bpenstock_\w+", (repository / "conf" / name).read_text()))
    assert len(asked) >= 8
    assert asked <= documented(repository)


def test_promtool_takes_the_rules(repository: Path) -> None:
    """U3"""
    rules = repository / "conf" / "alerts.yml"
    checked = subprocess.run(
        [needs("promtool", "prometheus"), "check", "rules", str(rules)], capture_output=True, text=True, check=False
    )
    assert checked.returncode == 0, checked.stderr


def test_promtool_takes_the_queries_of_the_board(repository: Path, tmp_path: Path) -> None:
    """U3: each panel's query is one that Prometheus can read."""
    board = json.loads((repository / "conf" / "grafana.json").read_text())
    queries = [target["expr"] for panel in board["panels"] for target in panel["targets"]]
    rules = [{"record": f"board:{number}", "expr": query} for number, query in enumerate(queries)]
    (tmp_path / "board.yml").write_text(json.dumps({"groups": [{"name": "board", "rules": rules}]}))  # JSON is YAML
    command = [needs("promtool", "prometheus"), "check", "rules", str(tmp_path / "board.yml")]
    checked = subprocess.run(command, capture_output=True, text=True, check=False)
    assert checked.returncode == 0, checked.stdout + checked.stderr
    assert len({panel["id"] for panel in board["panels"]}) == len(board["panels"])


def test_alerts_leave_out_paused_and_dead_letter_queues(repository: Path, tmp_path: Path) -> None:
    """Their messages wait on purpose: an alert would be permanent."""
    queues = {"stuck": {}, "paused": {"penstock_queue_paused": 1}, "dead": {"penstock_queue_collects_dead_letters": 1}}
    usual = {
        "penstock_queue_oldest_message_age_seconds": 9999,
        'penstock_queue_messages{state="available"}': 5,
        "penstock_queue_consumers": 0,
        "penstock_queue_leases": 0,
        "penstock_queue_paused": 0,
        "penstock_queue_collects_dead_letters": 0,
    }
    series = []
    for queue, special in queues.items():
        for name, value in {**usual, **special}.items():
            metric, _, state = name.partition("{")
            labels = f'instance="i", queue="{queue}"' + (f", {state[:-1]}" if state else "")
            series.append({"series": f"{metric}{{{labels}}}", "values": f"{value}x60"})
    shown = [
        {"expr": f'count by (alertname, queue) (ALERTS{{alertstate="firing", alertname="{name}"}})', "eval_time": "45m"}
        | {"exp_samples": [{"labels": f'{{alertname="{name}", queue="stuck"}}', "value": 1}]}
        for name in ("PenstockQueueOld", "PenstockQueueWithoutConsumer")
    ]
    case = {"interval": "1m", "input_series": series, "promql_expr_test": shown}
    rules = str(repository / "conf" / "alerts.yml")
    (tmp_path / "test.yml").write_text(json.dumps({"rule_files": [rules], "evaluation_interval": "1m", "tests": [case]}))
    command = [needs("promtool", "prometheus"), "test", "rules", str(tmp_path / "test.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
