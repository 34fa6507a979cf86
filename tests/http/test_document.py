"""docs/http.md: its commands run, and its tables are the code's."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Broker
from penstock.broker_core.actions.actions import ACTIONS
from penstock.broker_core.actions.fields import specs_of
from penstock.broker_core.http_plane import web
from penstock.broker_core.settings.keys import KEYS

from ..tools.pages import rows, section
from ..waiting import until
from .helpers import Http, basic

ADDRESS = "http://127.0.0.1:8816"


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "http.md").read_text()


def test_its_commands_run_from_top_to_bottom(page: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    output = ""
    with Broker(tmp_path / "data", fsync="never") as broker:
        for block in re.findall(r"^```bash\n(.*?)^```", page, re.MULTILINE | re.DOTALL):
            script = "set -e\n" + block.replace(ADDRESS, broker.http_url).replace("curl -s", "curl -sS --fail-with-body")
            done = subprocess.run(
                ["bash", "-c", script], cwd=tmp_path, env=environment, capture_output=True, text=True, check=False
            )
            assert done.returncode == 0, (block, done.stdout, done.stderr)
            output += done.stdout
            if "penstock permit" in block:  # the broker looks at its users once in a second
                password = (tmp_path / "alice.password").read_text().rstrip("\n")
                alice = Http(broker.http_url, authorization=basic("alice", password))
                until(lambda: alice.get("/api/v1/session").json.get("rights", {}).get("*"), "the rights of alice are valid")  # noqa: B023
    assert '{"ready": true' in output
    assert re.findall(r"^penstock_queues (.*)", output, re.MULTILINE) == ["0.0", "1.0"]
    assert output.count('"changed": true') == 2


def test_its_list_of_actions_is_the_table(page: str) -> None:
    """The page has the same texts as OpenAPI. `python -m tests.http.test_document` in the checkout writes the list."""
    assert section(page, "Actions").strip() == listed().strip()


def listed() -> str:
    lines = []
    for name, action in ACTIONS.items():
        methods = "GET, POST" if action.reads else "POST"
        fields = "".join(f"\n- `{field}`: {spec.about}" for field, spec in specs_of(action.operation.request).items())
        lines.append(f"**`{name}`** ({methods}). {action.summary}{fields}")
    return "\n\n".join(lines)


def test_its_codes_are_those_of_the_code(page: str) -> None:
    source = "".join(path.read_text() for path in Path(web.__file__).parents[1].rglob("*.py"))
    used = set(re.findall(r"(?:replies\.error|_HttpError)\(\s*(\d{3}),\s+\"([A-Z_]+)\"", source))
    documented = {(status, code.strip("`")) for code, status, *_ in rows(section(page, "Errors"))[1:]}
    assert documented == used - {("404", "NOT_FOUND"), ("500", "ERROR"), ("400", "INVALID_REQUEST")}


def test_its_settings_are_settings(page: str) -> None:
    named = set(re.findall(r"`(http_\w+)", page))
    assert named == {key for key in KEYS if key.startswith("http_")}


if __name__ == "__main__":
    document = Path(__file__).parents[2] / "docs" / "http.md"
    before = document.read_text().partition("## Actions\n")[0]
    document.write_text(f"{before}## Actions\n{listed()}\n")
