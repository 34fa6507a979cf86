"""SIGHUP reads the settings that may change while the broker runs, and says which others need a restart."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.broker_core.settings.keys import KEYS
from penstock.broker_core.settings.live import LIVE

from ..waiting import until


def test_sighup_reads_what_may_change(tmp_path: Path) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text('free_space_mark_bytes = "1 MiB"\namqp_credit = 10\nlog_level = "warning"\n')
    with Broker(tmp_path / "data", config=config) as broker:
        broker.declare("q")
        config.write_text('free_space_mark_bytes = "2 MiB"\namqp_credit = 20\nlog_level = "info"\nretention_bytes = "1 MiB"\n')
        os.kill(broker.pid, signal.SIGHUP)
        until(lambda: "a restart is needed for: amqp_credit" in broker.log(), "what needs a restart is logged")
        assert "retention_bytes = 1048576" in broker.log()
        assert "free_space_mark_bytes = 2097152" in broker.log()
        os.kill(broker.pid, signal.SIGHUP)
        until(
            lambda: " INFO penstock: settings read again: nothing has changed" in broker.log(),
            "it is logged that nothing has changed",
        )
        config.write_text('free_space_mark_bytes = "what"\n')
        os.kill(broker.pid, signal.SIGHUP)
        until(lambda: "those before stay in force" in broker.log(), "the mistake is logged")
        config.write_text(f"free_space_mark_bytes = {1 << 60}\n")
        os.kill(broker.pid, signal.SIGHUP)
        until(lambda: f"free_space_mark_bytes = {1 << 60}" in broker.log(), "the new setting is logged")
        with Client(broker.url) as client:
            assert client.call("queue.stat", queue="q")["available"] == 0  # it goes on
        broker.stop()  # SIGTERM after SIGHUP is a clean stop


def test_the_documents_name_what_may_change(repository: Path) -> None:
    assert set(LIVE) <= set(KEYS)
    for page in ("docs/operate.md", "conf/penstock.toml"):
        text = (repository / page).read_text()
        after = text.partition("SIGHUP reads")[2].partition("\n\n#" if page.startswith("docs") else "log_level = ")[0]
        for name in set(LIVE) - {"log_level"}:
            assert name in after, (page, name)
