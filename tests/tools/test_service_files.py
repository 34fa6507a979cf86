"""Files in conf/ with which a broker is run as a service: systemd's unit and the Containerfile."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
import trustme
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.broker_core.http_plane import liveness
from penstock.broker_core.http_plane.liveness import is_live

from ..programs import needs


def test_systemd_takes_the_unit(repository: Path, tmp_path: Path) -> None:
    """U9: `systemd-analyze verify` has nothing to say, and a third of its points of exposure at most are left."""
    analyze = needs("systemd-analyze", "systemd")
    unit = tmp_path / "penstock.service"
    text = (repository / "conf" / "penstock.service").read_text()
    unit.write_text(text.replace("/opt/penstock/bin/penstock", str(Path(sys.executable).with_name("penstock"))))
    verified = subprocess.run([analyze, "verify", str(unit)], capture_output=True, text=True, check=False)
    assert (verified.returncode, verified.stderr) == (0, "")
    rated = subprocess.run(
        [analyze, "security", "--offline=yes", "--threshold=33", str(unit)], capture_output=True, text=True, check=False
    )
    assert rated.returncode == 0, rated.stdout[-500:]


def test_the_steps_that_install_the_unit_succeed_in_their_order(repository: Path, tmp_path: Path) -> None:
    """Only `/etc/systemd/system` exists beforehand. Users and services of this machine are not touched."""
    comment = (repository / "conf" / "penstock.service").read_text().partition("\n[Unit]")[0]
    steps = [line.removeprefix("#   ") for line in comment.splitlines() if line.startswith("#   ")]
    assert len(steps) >= 3
    (tmp_path / "etc/systemd/system").mkdir(parents=True)
    (tmp_path / "bin").mkdir()
    for name in ("useradd", "systemctl"):
        (tmp_path / "bin" / name).symlink_to("/bin/true")
    environment = {**os.environ, "PATH": f"{tmp_path}/bin:{os.environ['PATH']}"}
    for step in steps:
        here = step.replace("/etc/", f"{tmp_path}/etc/").replace("/opt/penstock/bin/penstock", f"{sys.executable} -m penstock")
        subprocess.run(["sh", "-ec", here], check=True, cwd=repository, env=environment, timeout=60)
    installed = sorted(str(path.relative_to(tmp_path)) for path in (tmp_path / "etc").rglob("*") if path.is_file())
    assert installed == ["etc/penstock/penstock.toml", "etc/systemd/system/penstock.service"]


def instructions(text: str) -> Iterator[tuple[str, str]]:
    """The instructions of a Containerfile, in order: name and arguments."""
    lines = (line for line in text.replace("\\\n", " ").splitlines() if line.strip() and not line.startswith("#"))
    for line in lines:
        name, _, arguments = line.partition(" ")
        yield name, arguments.strip()


def test_the_steps_of_the_container_lead_to_a_broker(repository: Path, tmp_path: Path) -> None:
    """U9: each step runs as in a build. A new environment of this Python replaces the base image of a registry.

    The test creates no users on this machine, and uses free ports.
    """
    image, data = tmp_path / "image", tmp_path / "data"
    subprocess.run([sys.executable, "-m", "venv", str(image)], check=True)
    (site,) = (image / "lib").glob("python*/site-packages")
    (site / "installed.pth").write_text(next(path for path in sys.path if path.endswith("site-packages")) + "\n")
    for name in ("groupadd", "useradd", "chown"):
        (image / "bin" / name).write_text(f'#!/bin/sh\necho {name} "$@" >> {tmp_path}/asked\n')
        (image / "bin" / name).chmod(0o755)
    app = tmp_path / "app"
    app.mkdir()
    environment = {**os.environ, "PATH": f"{image}/bin:{os.environ['PATH']}"}
    environment.pop("PYTHONPATH", None)
    started: dict[str, list[str]] = {}
    seen = []
    for name, arguments in instructions((repository / "conf" / "Containerfile").read_text()):
        seen.append(name)
        if name == "COPY":
            assert arguments == "dist/penstock_mq-*.whl wheel/"
            wheel = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
            subprocess.run([*wheel, "--wheel-dir", str(app / "wheel"), str(repository)], check=True, stdin=subprocess.DEVNULL)
        elif name == "ENV":
            environment.update(pair.split("=", 1) for pair in arguments.split())
        elif name == "RUN":
            step = arguments.replace("/data", str(data)).replace("pip install", "pip install --force-reinstall --no-deps")
            subprocess.run(["sh", "-ec", step], check=True, cwd=app, env=environment)
        elif name in ("ENTRYPOINT", "CMD"):
            started[name] = json.loads(arguments)
        elif name == "HEALTHCHECK":
            started[name] = json.loads(arguments.partition(" CMD ")[2])
        else:
            assert name in ("FROM", "WORKDIR", "USER", "VOLUME", "EXPOSE", "STOPSIGNAL"), name
    assert seen.index("USER") > seen.index("RUN")
    assert (tmp_path / "asked").read_text().split()[0] == "groupadd"
    command = [part.replace("/data", str(data)) for part in (*started["ENTRYPOINT"], *started["CMD"])]
    free = shlex.split("--amqp-port 0 --flight-port 0 --http-port 0 --allow-anonymous true")
    program = shutil.which(command[0], path=environment["PATH"])
    assert program is not None
    assert program.startswith(str(image))
    process = subprocess.Popen([program, *command[1:], *free], stdout=subprocess.PIPE, cwd=app, env=environment)
    try:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        with Client(ready["flight"].replace("0.0.0.0", "127.0.0.1")) as client:
            client.call("queue.declare", queue="orders")
        port = ready["http"].rpartition(":")[2].rstrip("/")
        check = [part.replace("8816", port) for part in started["HEALTHCHECK"]]
        subprocess.run(check, check=True, env=environment, timeout=60)
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0
        assert subprocess.run(check, env=environment, timeout=60, check=False).returncode == 1
    finally:
        process.kill()
        process.wait()


def test_the_health_check_serves_both_schemes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The certificate is of another name than 127.0.0.1, as in a container. A silent server is not live."""
    trustme.CA().issue_cert("broker.example").private_key_and_cert_chain_pem.write_to_path(tmp_path / "both.pem")
    tls: dict[str, Any] = {"http_tls": True, "tls_cert_file": tmp_path / "both.pem", "tls_key_file": tmp_path / "both.pem"}
    for name, flags in (("plain", {}), ("tls", tls)):
        with Broker(tmp_path / name, fsync="never", **flags) as broker:
            port = int(broker.http_url.rpartition(":")[2])
            assert is_live(port)
        assert not is_live(port)
    monkeypatch.setattr(liveness, "TIMEOUT_S", 0.1)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        assert not is_live(silent.getsockname()[1])


def test_the_constraints_of_the_image_name_each_package_of_the_broker_once(repository: Path) -> None:
    """And nothing of Spark. The closure is that of the packages that are installed here, for the Python of the image."""
    lines = [line for line in (repository / "conf" / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    pinned = {name: version for name, _, version in (line.partition("==") for line in lines)}
    assert len(pinned) == len(lines)
    (python,) = re.findall(r"^FROM python:(3\.\d+)-", (repository / "conf" / "Containerfile").read_text(), re.MULTILINE)
    wanted, seen = [("penstock-mq", "broker")], set()
    while wanted:
        package, extra = wanted.pop()
        for text in metadata.requires(package) or ():
            requirement = Requirement(text)
            environment = {"extra": extra, "python_version": python, "python_full_version": f"{python}.0"}
            if requirement.marker is not None and not requirement.marker.evaluate(environment):
                continue
            name = canonicalize_name(requirement.name)
            pin = next((pinned[known] for known in pinned if canonicalize_name(known) == name), None)
            assert pin is not None, f"{name}, which {package} requires, has no version in constraints.txt"
            assert requirement.specifier.contains(pin), f"{package} requires {text}, and constraints.txt has {pin}"
            if name not in seen:
                wanted += [(name, extra) for extra in (requirement.extras or {""})]
                seen.add(name)
    assert seen == set(map(canonicalize_name, pinned))


def test_the_build_of_the_image_gets_the_wheel_only(repository: Path) -> None:
    patterns = [line for line in (repository / "conf" / "dockerignore").read_text().splitlines() if not line.startswith("#")]
    copied = dict(instructions((repository / "conf" / "Containerfile").read_text()))["COPY"]
    assert patterns == ["*", f"!{copied.split()[0]}"]
