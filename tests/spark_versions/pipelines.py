"""The pipelines of docs/spark.md, run by `spark-pipelines` as the page shows it."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from ..spark.conftest import Rig

PAGE = Path(__file__).resolve().parents[2] / "docs" / "spark.md"
_SECTION = re.compile(r"^### Declarative pipelines\n(.*?)^### ", re.MULTILINE | re.DOTALL)
_FILE = re.compile(r"^```\n# (\S+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
_COMMANDS = re.compile(r"^spark-pipelines .+$", re.MULTILINE)
LIMIT_S = 400


class Pipelines:
    """The files of the page in a folder, with another broker and another storage."""

    def __init__(self, folder: Path, url: str, environment: Mapping[str, str]) -> None:
        self._folder, self._environment = folder, environment
        section = _SECTION.search(PAGE.read_text())
        assert section is not None
        text = section[1].replace("amqp://127.0.0.1:5672", url).replace("/srv/pipelines", str(folder / "storage"))
        files = dict(_FILE.findall(text))
        assert set(files) == {"orders/orders.py", "orders.yml", "shop_3/shop_3.py", "shop_3.yml"}
        for name, content in files.items():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_text(content)
        self.read, self.write = map(shlex.split, _COMMANDS.findall(text))

    def run(self, command: list[str]) -> None:
        done = subprocess.run(
            command,
            cwd=self._folder,
            env=self._environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=LIMIT_S,
            check=False,
        )
        assert done.returncode == 0, (done.stdout + done.stderr)[-6000:]


def run_pipelines(rig: Rig, environment: Mapping[str, str], *, runs: int) -> None:
    """A pipeline reads a queue into a streaming table, and another writes a flow into a queue. Each run adds the new messages."""
    pytest.importorskip("yaml", reason="`spark-pipelines` needs PyYAML, which is not installed")
    rig.declare("orders", "orders-again")
    pipelines = Pipelines(rig.folder / "pipelines", rig.broker.amqp_url, environment)
    for run in range(runs):
        rows = rig.spark.range(run * 70, run * 70 + 70).selectExpr("string(id) body", "concat('shop-', id % 7) subject")
        rig.write(rows, "orders")
        pipelines.run(pipelines.read)
        pipelines.run(pipelines.write)
        assert rig.counts("orders")[0] == 0
        assert sorted(map(int, rig.bodies("orders-again"))) == list(range(3, run * 70 + 70, 7))
