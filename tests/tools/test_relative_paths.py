"""A broker whose settings have relative paths: its processes run in other directories, and all find their files."""

from __future__ import annotations

import contextlib
import json
import signal
import socket
import ssl
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import trustme

from penstock.broker_core.children.processes import environment

from ..waiting import until

SETTINGS = """
data = "data"
tls_cert_file = "broker.pem"
tls_key_file = "broker.key"
flight_tls = true
http_tls = true
flight_port = 0
http_port = 0
copy_url = "copy"
listeners = [{ port = 0, tls = true }]
"""


def certify(authority: trustme.CA, folder: Path) -> None:
    issued = authority.issue_cert("localhost", "127.0.0.1")
    issued.private_key_pem.write_to_path(str(folder / "broker.key"))
    issued.cert_chain_pems[0].write_to_path(str(folder / "broker.pem"))


def serial(url: str, trusting: ssl.SSLContext) -> str:
    """Return the serial number of the certificate that is served at a URL."""
    host, _, port = url.partition("://")[2].rpartition(":")
    with (
        socket.create_connection((host, int(port)), timeout=30) as plain,
        trusting.wrap_socket(plain, server_hostname="localhost") as secured,
    ):
        details = secured.getpeercert()
        assert details is not None
        return str(details["serialNumber"])


@contextlib.contextmanager
def serving(folder: Path, *arguments: str, log: Path) -> Iterator[subprocess.Popen[str]]:
    command = [sys.executable, "-m", "penstock", "serve", *arguments]
    with open(log, "w") as output:
        process = subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=output, text=True, env=environment())
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


@pytest.mark.parametrize("start", ["beside the file", "above the file", "flags"])
def test_a_renewed_certificate_is_served_on_every_port(tmp_path: Path, start: str) -> None:
    authority, trusting = trustme.CA(), ssl.create_default_context()
    authority.configure_trust(trusting)
    etc, log = tmp_path / "etc", tmp_path / "log"
    etc.mkdir()
    certify(authority, etc)
    if start == "flags":  # relative to the working directory, not to the file's folder
        (etc / "penstock.toml").write_text("listeners = [{ port = 0, tls = true }]\n")
        flags = "--data data --tls-cert-file broker.pem --tls-key-file broker.key --copy-url copy --flight-port 0 --http-port 0"
        arguments, folder = [*flags.split(), "--flight-tls", "true", "--http-tls", "true", "--config", "penstock.toml"], etc
    else:
        (etc / "penstock.toml").write_text(SETTINGS)
        folder = etc if start == "beside the file" else tmp_path
        arguments = ["--config", str((etc / "penstock.toml").relative_to(folder))]
    with serving(folder, *arguments, log=log) as process:
        assert process.stdout is not None
        ready = json.loads(process.stdout.readline())
        urls = [ready[plane] for plane in ("amqp", "flight", "http")]
        assert [url.partition("://")[0] for url in urls] == ["amqps", "grpc+tls", "https"]
        (before,) = {serial(url, trusting) for url in urls}
        certify(authority, etc)
        for url in urls:
            until(lambda url=url: serial(url, trusting) != before, f"{url} serves the renewed certificate")
        assert len({serial(url, trusting) for url in urls}) == 1
        process.send_signal(signal.SIGHUP)
        until(lambda: "settings read again: nothing has changed" in log.read_text(), "the same paths are read again")
    assert sorted(path.name for path in etc.iterdir()) == ["broker.key", "broker.pem", "copy", "data", "penstock.toml"]
    assert (etc / "data" / "manifest").is_file()


def test_a_child_gets_absolute_paths_in_its_environment(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "credentials")
    monkeypatch.setenv("PYTHONPATH", "libraries:/opt/libraries")
    variables = environment()
    assert variables["AWS_SHARED_CREDENTIALS_FILE"] == str(tmp_path / "credentials")
    assert variables["PYTHONPATH"].split(":")[-2:] == [str(tmp_path / "libraries"), "/opt/libraries"]
