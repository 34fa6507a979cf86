"""The programs of docs/service-bus.md, and cases of the Python SDK alone. All SDKs: scenarios/."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .conftest import command_or_skip
from .driving import Program, Refused
from .service_bus import SDKS, SETTINGS, connection_string, port_of

_numbers = itertools.count()


@pytest.fixture(scope="module")
def settings() -> dict[str, Any]:
    return SETTINGS


@pytest.fixture
def queue(flight: Client) -> str:
    """A queue with a dead-letter queue, locks of a minute and three attempts."""
    name = f"queue-{next(_numbers)}"
    flight.call("queue.declare", queue=f"{name}-dead")
    options = {"deadLetterQueue": f"{name}-dead", "lockTimeout": 60_000, "maxAttempts": 3}
    flight.call("queue.declare", queue=name, options=options)
    return name


# ---- receiving


def send(sdk: Program, queue: str, *bodies: str) -> None:
    sdk.do("send", to=queue, messages=[{"body": body} for body in bodies], batch=len(bodies) > 1)


# ---- $management


def test_a_lost_lock_is_not_renewed(sdk: Program, flight: Client, queue: str) -> None:
    send(sdk, queue, "gone")
    (message,) = sdk.receive(queue)
    sdk.do("settle", token=message["token"], how="abandon")
    (again,) = sdk.receive(queue)
    flight.call("queue.purge", queue=queue)
    sdk.do("settle", token=again["token"])
    with pytest.raises(Refused) as refused:
        sdk.do("renew_again", token=message["token"])
    assert refused.value.level == "MessageLockLostError"


# ---- documents and WebSocket


@pytest.mark.parametrize("language", ["python", "javascript", "java"])
def test_the_program_of_the_document_runs(
    language: str, broker: Broker, flight: Client, repository: Path, tmp_path: Path
) -> None:
    flight.call("queue.declare", queue="orders")
    text = (repository / "docs" / "service-bus.md").read_text().partition(f"```{language}\n")[2].partition("```")[0]
    program = text.replace("localhost:5672", f"127.0.0.1:{port_of(broker)}")
    folder = Path(command_or_skip(SDKS[language][0])[-1]).parent
    if language == "java":
        folder = Path(command_or_skip("servicebus_java")[-2].partition("/classes:")[0])
        (tmp_path / "Orders.java").write_text(program)
    command = {
        "python": [sys.executable, "-c", program],
        "javascript": ["node", "-e", program],
        "java": ["java", "-cp", f"{folder}/lib/*", str(tmp_path / "Orders.java")],
    }[language]
    environment = {**os.environ, "PYTHONPATH": str(folder / "lib")}
    done = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "one order\n"


def test_the_commands_of_the_document_run(repository: Path, tmp_path: Path) -> None:
    """Also the key that they print."""
    page = (repository / "docs" / "service-bus.md").read_text()
    config, *_ = re.findall(r"^```toml\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (tmp_path / "penstock.toml").write_text(config.replace("port = 5672", "port = 0"))
    blocks = re.findall(r"^ *```bash\n(.*?)^ *```", page, re.MULTILINE | re.DOTALL)
    blocks.sort(key=lambda block: "penstock user" in block)  # afterwards the other commands need a login
    output = ""
    with Broker(tmp_path / "data", config=tmp_path / "penstock.toml", http_port=None) as broker:
        environment = {**os.environ, "PENSTOCK_URL": broker.flight_url}
        for line in "".join(blocks).replace("\\\n", " ").splitlines():
            name, *words = shlex.split(line)
            if words[0] == "serve":
                continue
            command = [sys.executable, "-m", name, *words]
            done = subprocess.run(
                command, cwd=tmp_path, env=environment, input=b"a password\n", capture_output=True, timeout=60, check=False
            )
            assert done.returncode == 0, f"{line}: {done.stderr.decode()}"
            output += done.stdout.decode()
        (key,) = re.findall("SharedAccessKeyName=shop;SharedAccessKey=(.*)", output)
        # The broker looks at its files once a second. The key is written after the user and its rights.
        until(lambda: "shared-access keys reloaded" in broker.log(), lambda: f"the broker has the key: {broker.log()}")
        with Program(command_or_skip("servicebus")) as program:
            program.do("open", connection=connection_string(broker, "shop", key))
            send(program, "orders", "one order")
            assert program.receive("orders")[0]["body"] == "one order"
            with pytest.raises(Refused) as refused:
                send(program, "invoices", "not permitted")
            assert refused.value.level == "ServiceBusAuthenticationError"


def test_the_test_of_the_document_runs(repository: Path) -> None:
    section = (repository / "docs" / "service-bus.md").read_text().partition("## Testing a program")[2]
    program = section.partition("```python\n")[2].partition("```")[0]
    library = Path(command_or_skip("servicebus")[1]).parent / "lib"
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(library), os.environ.get("PYTHONPATH", "")])}
    subprocess.run([sys.executable, "-c", program], env=environment, timeout=60, check=True)


@pytest.mark.parametrize("allowed", [True, False])
def test_the_sdk_connects_by_websocket(tmp_path: Path, allowed: bool) -> None:
    """Any web page could, so a broker without users has to allow it."""
    listeners = [{"port": 0, "websocket": True, "dialect": "service-bus"}]
    with Broker(tmp_path / "data", fsync="never", listeners=listeners, allow_anonymous=allowed) as broker:
        with Client(broker.url) as client:
            client.call("queue.declare", queue="q")
        with Program(command_or_skip("servicebus")) as program:
            port = port_of(broker, "ws")
            place, connection = f"sb://127.0.0.1:{port}", connection_string(broker, port=port)
            program.do("open", connection=connection, custom_endpoint_address=place, websocket=True)
            if not allowed:
                with pytest.raises(Refused):
                    program.do("send", to="q", messages=[{"body": "unproven"}])
                assert "accepts no token over WebSocket" in broker.log(), "the SDK does not show the reason"
                return
            program.do("send", to="q", messages=[{"body": "woven"}])
            assert program.receive("q")[0]["body"] == "woven"
