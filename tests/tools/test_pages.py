"""docs/security.md: the recipes run, and the rights list every request. docs/operate.md: the limits are those of the code."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.broker_core.actions.actions import ACTIONS
from penstock.broker_core.actions.requests import PUTS, TICKETS
from penstock.broker_core.engine.columns import limits
from penstock.broker_core.engine.columns.obstacles import Obstacle
from penstock.broker_core.quantities import GIB
from penstock.broker_core.security.rights import Right
from penstock.broker_core.server.child import Broker
from penstock.broker_core.server.open_files import OTHERS
from penstock.broker_core.settings.keys import DEFAULT_AMQP_PORT, DEFAULT_FLIGHT_PORT, Settings

from ..programs import needs

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def page(repository: Path) -> str:
    return (repository / "docs" / "security.md").read_text()


def recipe(page: str, title: str) -> list[tuple[str, str]]:
    """The language and the text of each code block of a recipe."""
    text = page.partition(f"\n## Recipe: {title}\n")[2].partition("\n## ")[0]
    assert text, title
    return BLOCK.findall(text)


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment in which `penstock` is the tested package."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "penstock").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m penstock "$@"\n')
    (binaries / "penstock").chmod(0o755)
    environment = {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}
    environment.pop("PENSTOCK_URL", None)
    return environment


def test_the_recipes_from_top_to_bottom(page: str, shell: dict[str, str], tmp_path: Path) -> None:
    needs("openssl", "openssl")

    def run(text: str, expected: str = "", broker: Broker | None = None) -> str:
        try:
            done = subprocess.run(
                ["sh", "-ec", text],
                cwd=tmp_path,
                env=shell,
                stdin=subprocess.DEVNULL,
                capture_output=True,
                text=True,
                timeout=120,
                check=False,
            )
            code, out, err = str(done.returncode), done.stdout, done.stderr
        except subprocess.TimeoutExpired as late:
            code, out, err = "none in 120 s", f"{late.stdout}", f"{late.stderr}"
        log = "" if broker is None else broker.log()
        assert code == "0" and expected in out, f"{text}\nexit code: {code}\nstdout: {out}\nstderr: {err}\nbroker: {log}"  # noqa: PT018
        return out

    output = ""
    for language, text in (*recipe(page, "users and permissions"), *recipe(page, "certificates with openssl")):
        assert language == "bash"
        output += run(text)
    assert "shop may receive, send on orders.*" in output
    assert "anonymous may browse on news" in output
    assert {"broker.pem: OK", "spark.pem: OK"} <= set(output.splitlines())

    (language, config), (_, with_passwords), (_, with_certificate) = recipe(page, "a broker with TLS on both planes")
    assert language == "toml"
    # Free ports, on this machine only.
    config = config.replace("5671", "0").replace("0.0.0.0", "127.0.0.1")
    (tmp_path / "penstock.toml").write_text(config)
    with Broker(tmp_path / "data", config=tmp_path / "penstock.toml", fsync="never") as broker:
        ports = {"5671": broker.amqp_url.rpartition(":")[2], "8815": broker.flight_url.rpartition(":")[2]}
        for documented, port in ports.items():
            with_passwords = with_passwords.replace(f"localhost:{documented}", f"localhost:{port}")
            with_certificate = with_certificate.replace(f"localhost:{documented}", f"localhost:{port}")
        run(with_passwords, "orders.new", broker)
        assert run(with_certificate, "hello over TLS\n", broker) == "hello over TLS\n"


def test_every_right_and_every_request_is_named_with_it(page: str) -> None:
    rights = page.partition("\n## Rights\n")[2].partition("\n### ")[0]
    assert re.findall(r"^\| `(\w+)` \|", rights, re.MULTILINE) == [right.value for right in Right]
    text = page.partition("\n### Over Flight\n")[2].partition("\n## ")[0]
    documented: dict[str, set[str]] = {}
    heading = ""
    for line in text.splitlines():
        if line.startswith(("- ", "  ")):
            for name in re.findall(r"`((?:\w+\.)?\w+)`", line):
                documented.setdefault(name, set()).add(heading)
        elif line:
            heading = line
    needs = {name: action.operation.need for name, action in ACTIONS.items()}
    needs |= {name: operation.need for name, operation in {**TICKETS, **PUTS}.items()}
    assert needs.keys() <= documented.keys()
    for name, need in needs.items():
        wanted = "A user" if need.on is None else "Any right" if need.right is None else f"`{need.right.value}`"
        assert any(wanted in heading for heading in documented[name]), (name, wanted)


@pytest.fixture(scope="module")
def of_operators(repository: Path) -> str:
    return (repository / "docs" / "operate.md").read_text()


@pytest.mark.parametrize(
    ("limit", "value"),
    [
        ("characters of a name of a queue, exchange, lease or stage", f"{limits.MAX_NAME}"),
        ("queues", f"{limits.MAX_QUEUES:,}"),
        ("exchanges", f"{limits.MAX_EXCHANGES:,}"),
        ("bindings of one exchange", f"{limits.MAX_BINDINGS:,}"),
        ("leases", f"{limits.MAX_LEASES:,}"),
        ("stages, each an attempt of one task of a write", f"{limits.MAX_STAGES:,}"),
        ("staged bytes, all together", f"{limits.MAX_STAGED_BYTES // GIB} GiB"),
        (
            "open transactions",
            f"{limits.MAX_TRANSACTIONS:,}, of one user {limits.MAX_USER_TRANSACTIONS:,},"
            f" of one connection {limits.MAX_OWN_TRANSACTIONS:,}",
        ),
        ("messages of one transaction", f"{limits.MAX_TRANSACTION_MESSAGES:,}"),
        ("bytes of one transaction", f"{limits.MAX_TRANSACTION_BYTES // GIB} GiB"),
        ("age of one transaction", f"{limits.TRANSACTION_AGE // limits.SECOND // 3600} hour"),
        ("message groups of one queue with unsettled messages", f"{limits.MAX_GROUPS:,}"),
        ("publish keys, all users together", f"{limits.MAX_PUBLISH_KEYS:,}"),
    ],
)
def test_a_limit_is_told_as_it_is(of_operators: str, limit: str, value: str) -> None:
    assert f"\n| {limit} | {value} |\n" in of_operators


def test_the_ports_and_the_open_files_are_told_as_they_are(of_operators: str) -> None:
    assert f"| `flight_port` | {DEFAULT_FLIGHT_PORT} |" in of_operators
    assert f"| `amqp_port` | {DEFAULT_AMQP_PORT} |" in of_operators
    settings = Settings(data=Path("d"))
    wanted = settings.amqp_max_connections + settings.flight_max_connections + OTHERS
    assert f"`amqp_max_connections` + `flight_max_connections` + {OTHERS}" in " ".join(of_operators.split())
    assert f"{wanted:,} with the defaults" in " ".join(of_operators.split())


def test_what_the_log_says_is_what_the_code_says(of_operators: str, repository: Path) -> None:
    table = of_operators.partition("\n## Log lines\n")[2].partition("\n## ")[0]
    lines = [line for cell in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for line in re.findall(r"`([^`]+)`", cell)]
    assert len(lines) > 15
    code = "\n".join(path.read_text() for path in (repository / "broker_core").rglob("*.py"))
    code = re.sub(r'"\s*\n\s*f?"', "", code)  # a text in several pieces
    code = re.sub(r"%[.\d]*[sdfgr]|\{[^{}]*\}", "…", code)
    for line in lines:
        assert re.sub(r"\b(N|USER)\b", "…", line).strip("… ;:") in code, line


def test_each_reason_why_messages_wait_is_listed(of_operators: str) -> None:
    table = of_operators.partition("\n| reason | the consumer waits for |\n")[2].partition("\n\n")[0]
    reasons = [reason for cell in re.findall(r"^\| (`.*?`) \|", table, re.MULTILINE) for reason in re.findall(r"`([^`]+)`", cell)]
    assert sorted(reasons) == sorted(obstacle.value for obstacle in Obstacle)


@pytest.mark.parametrize(
    "name", ["choices.md", "clients.md", "operate.md", "security.md", "protocols/amqp.md", "protocols/flight.md"]
)
def test_the_files_that_a_page_names_are_there(repository: Path, name: str) -> None:
    text = (repository / "docs" / name).read_text()
    paths = [path for top in ("broker_core", "connector", "jobs", "tests") for path in (repository / top).rglob("*.py")]
    for named in set(re.findall(r"`([\w/]+\.py)`", text)):
        assert any(str(path).endswith(f"/{named}") for path in paths), named


def test_the_transcripts_and_tests_that_the_page_of_amqp_names_are_there(repository: Path) -> None:
    text = (repository / "docs" / "protocols" / "amqp.md").read_text()
    library, plane = (repository / "tests" / name / "transcripts" for name in ("amqp", "amqp_plane"))
    for place, folder in (("transcripts", library), ("plane", plane)):
        for named in set(re.findall(rf"`{place}/(\w\w+\*?)`", text)):  # not `x`, which explains them
            assert list(folder.glob(f"{named}.txt")), named
