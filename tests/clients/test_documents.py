"""The programs of docs/clients.md run unchanged: each prints its messages."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import trustme

from penstock import Broker

from .conftest import command_or_skip

BLOCK = re.compile(r"^```(\w+)\n(.*?)^```", re.MULTILINE | re.DOTALL)
ADDRESS, TLS_PORT = "127.0.0.1:5672", "5671"


def blocks(page: str, section: str) -> list[tuple[str, str]]:
    """The language and the text of each code block under a heading."""
    (text,) = (part for part in re.split(r"^## ", page, flags=re.MULTILINE) if part.startswith(section + "\n"))
    return BLOCK.findall(text)


@pytest.fixture
def page(repository: Path) -> str:
    return (repository / "docs" / "clients.md").read_text()


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment in which `penstock` is the version under test."""
    binaries = tmp_path / "bin"
    binaries.mkdir()
    (binaries / "penstock").write_text(f'#!/bin/sh\nexec "{sys.executable}" -m penstock "$@"\n')
    (binaries / "penstock").chmod(0o755)
    return {**os.environ, "PATH": f"{binaries}{os.pathsep}{os.environ['PATH']}"}


def ran(command: list[str], folder: Path, environment: dict[str, str] | None = None) -> str:
    done = subprocess.run(
        command, cwd=folder, env=environment, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=120, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def run_js(text: str, folder: Path) -> str:
    program = Path(command_or_skip("rhea")[-1])
    (folder / "orders.js").write_text(text)
    return ran(["node", "orders.js"], folder, {**os.environ, "NODE_PATH": str(program.parent / "node_modules")})


def run_go(text: str, folder: Path) -> str:
    built = Path(command_or_skip("go_amqp")[-1]).parent
    for name in ("go.mod", "go.sum"):
        shutil.copy(built / name, folder)
    (folder / "main.go").write_text(text)
    return ran(["go", "run", "."], folder)


def run_java(text: str, folder: Path) -> str:
    classes = command_or_skip("vertx" if "io.vertx" in text else "qpid_jms")[-2]
    (name,) = re.findall(r"public class (\w+)", text)
    program = f"{name}.java"
    (folder / program).write_text(text)
    return ran(["java", "-cp", classes, program], folder)


def run_python(text: str, folder: Path) -> str:
    (folder / "orders.py").write_text(text)
    return ran([sys.executable, "orders.py"], folder)


RUNNERS = {"js": run_js, "go": run_go, "java": run_java, "python": run_python}


@pytest.mark.parametrize("language", ["JavaScript", "Go", "Java", "Spring", "Vert.x", "Python", "Python, Penstock's client"])
def test_the_program_of_each_language(language: str, page: str, broker: Broker, tmp_path: Path) -> None:
    broker.declare("orders")
    (name, text), *_ = blocks(page, language)
    assert ADDRESS in text or language in ("JavaScript", "Vert.x")
    port = broker.amqp_url.rpartition(":")[2]
    assert RUNNERS[name](text.replace("5672", port), tmp_path) == f"hello from {language}\n"


def test_a_topic_of_jms(page: str, broker: Broker, shell: dict[str, str], tmp_path: Path) -> None:
    (_, command), (_, program) = blocks(page, "JMS")
    ran(["sh", "-ec", command], tmp_path, {**shell, "PENSTOCK_URL": broker.flight_url})
    assert run_java(program.replace("5672", broker.amqp_url.rpartition(":")[2]), tmp_path) == "hello from a topic\n"


def test_the_shell(page: str, broker: Broker, shell: dict[str, str], tmp_path: Path) -> None:
    ((_, first),) = BLOCK.findall(page.partition("\n## ")[0])
    ((_, text),) = blocks(page, "Shell")
    commands = "set -e\n" + "".join(line + "\n" for line in (first + text).splitlines() if not line.startswith("penstock serve"))
    output = ran(["sh", "-c", commands], tmp_path, {**shell, "PENSTOCK_URL": broker.amqp_url})
    assert output.splitlines()[-1] == "hello from a shell"


def test_tls_and_a_user(page: str, shell: dict[str, str], tmp_path: Path) -> None:
    (_, commands), (_, config), (_, program) = blocks(page, "With TLS and a user")
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    certificate.cert_chain_pems[0].write_to_path(str(tmp_path / "broker.pem"))
    certificate.private_key_pem.write_to_path(str(tmp_path / "broker.key"))
    (tmp_path / "password.txt").write_text("correct horse battery\n")
    with Broker(tmp_path / "data", fsync="never") as broker:
        broker.declare("orders")
    ran(["sh", "-ec", commands], tmp_path, shell)
    assert f"port = {TLS_PORT}" in config
    # A free port, reachable from this machine only.
    config = config.replace(TLS_PORT, "0").replace("0.0.0.0", "127.0.0.1")
    (tmp_path / "penstock.toml").write_text(config)
    with Broker(tmp_path / "data", config=tmp_path / "penstock.toml") as broker:
        port = broker.amqp_url.rpartition(":")[2]
        program = program.replace(TLS_PORT, port)
        assert run_js(program, tmp_path) == "hello over TLS\n"


def test_the_versions_named_are_those_tested(page: str, repository: Path) -> None:
    clients = repository / "tests" / "clients"
    files = {
        "rhea": "rhea/package.json",
        "go-amqp": "go_amqp/go.mod",
        "qpid-jms": "qpid_jms/pom.xml",
        "spring-jms": "qpid_jms/pom.xml",
        "vertx-amqp-client": "vertx/pom.xml",
        "fe2o3-amqp": "fe2o3_amqp/Cargo.toml",
        "azure-servicebus": "servicebus/requirements.txt",
    }
    for name, file in files.items():
        version = re.search(rf"^{name} (\d+\.\d+\.\d+)", page, re.MULTILINE)
        assert version is not None
        assert re.search(rf"{name}.*?{re.escape(version[1])}", (clients / file).read_text(), re.DOTALL), name
    assert "python-qpid-proton 0.40.0" in page
    assert "python-qpid-proton==0.40.0" in (repository / "pyproject.toml").read_text()
