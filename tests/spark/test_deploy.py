"""S13: the ways to bring the connector to Spark: found automatically, shipped by Connect, sent with --py-files."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyspark
import pytest

from penstock import Broker
from penstock.broker_core.client.flight import Client
from penstock.connector import pyfiles

from ..waiting import until

SPARK_HOME = Path(pyspark.__file__).parent

ROUND_TRIP = """
columns = spark.range(0, 50, 1, 2).selectExpr("cast(id as string) body")
encoded = spark.range(50, 100, 1, 2).selectExpr("concat(unhex('005375A002'), encode(cast(id as string), 'UTF-8')) message")
options = {"url": url, "queue": queue}
for frame in (columns, encoded):
    frame.write.format("amqp").options(**options).mode("append").save()
looked = spark.read.format("amqp").options(**options).load().count()
stream = spark.readStream.schema("body string").format("amqp").options(**options).load()
writer = stream.writeStream.format("json").option("checkpointLocation", folder + "/c")
writer.trigger(availableNow=True).start(folder + "/t").awaitTermination()
taken = sorted(int(row.body) for row in spark.read.json(folder + "/t").collect())
rows = spark.readStream.schema("body string").json(folder + "/t")
named = rows.writeStream.queryName("back").format("amqp").options(**options).option("checkpointLocation", folder + "/n")
named.trigger(availableNow=True).start().awaitTermination()
back = spark.read.format("amqp").options(**options).load().count()
print(json.dumps({"looked": looked, "taken": taken == list(range(100)), "back": back}), flush=True)
"""
DONE = {"looked": 100, "taken": True, "back": 100}
PREAMBLE = """
import json, sys
from pyspark.sql import SparkSession
url, folder, where = sys.argv[1:]
queue = "orders"
"""


#: The interpreter below the virtual environment, without its packages.
BASE_PYTHON = getattr(sys, "_base_executable", sys.executable)
OURS = ("penstock", "pyspark_penstock")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build a site-packages without Penstock, whether or not the wheel is installed."""
    folder = tmp_path_factory.mktemp("site-packages")
    for entry in SPARK_HOME.parent.iterdir():
        if not entry.name.startswith(OURS) and entry.suffix != ".pth":
            (folder / entry.name).symlink_to(entry)
    return folder


@pytest.fixture
def installed(tmp_path: Path, repository: Path) -> Path:
    """Build a folder as the wheel installs it: our packages, and the module that Spark finds."""
    folder = tmp_path / "installed"
    folder.mkdir()
    (folder / "penstock").symlink_to(Path(sys.modules["penstock"].__file__ or "").parent)
    (folder / "pyspark_penstock.py").write_bytes((repository / "connector" / "_discovery.py").read_bytes())
    return folder


def environment(*paths: Path, **names: str) -> dict[str, str]:
    """Return the environment of processes that find Python packages only in `paths`."""
    inherited = {name: value for name, value in os.environ.items() if not name.startswith(("SPARK", "PYSPARK", "PYTHON"))}
    path = os.pathsep.join(map(str, paths))
    python = {"PYTHONPATH": path, "PYSPARK_PYTHON": BASE_PYTHON, "PYSPARK_DRIVER_PYTHON": BASE_PYTHON}
    return {**inherited, **python, "SPARK_LOCAL_IP": "127.0.0.1", "SPARK_HOME": str(SPARK_HOME), **names}


def run(arguments: list[str], *, env: dict[str, str], cwd: Path) -> Any:
    return json.loads(ended(arguments, env=env, cwd=cwd).stdout.splitlines()[-1])


def ended(arguments: list[str], *, env: dict[str, str], cwd: Path) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(arguments, env=env, cwd=cwd, capture_output=True, text=True, timeout=280, check=False)
    # Python's messages, without Java's.
    lines = [line for line in done.stderr.splitlines() if not line.startswith("\tat ") and " INFO " not in line]
    assert done.returncode == 0, "\n".join(lines)[-6000:]
    return done


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


@contextmanager
def process(arguments: list[str], *, env: dict[str, str], log: Path, ready: Callable[[], bool]) -> Iterator[None]:
    with log.open("wb") as output:
        started = subprocess.Popen(arguments, env=env, cwd=log.parent, stdout=output, stderr=output, start_new_session=True)
    try:

        def is_ready() -> bool:
            assert started.poll() is None, log.read_text()[-4000:]
            return ready()

        until(is_ready, lambda: f"{arguments[0]} is ready: {log.read_text()[-4000:]}", limit_s=120)
        yield
    finally:
        os.killpg(started.pid, signal.SIGTERM)
        started.wait(60)


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@pytest.fixture
def orders(broker: Broker, client: Client) -> Broker:
    for queue in ("orders", "registered"):
        client.call("queue.declare", queue=queue)
    return broker


@pytest.mark.timeout(300)
def test_spark_finds_the_format_by_itself(orders: Broker, tmp_path: Path, bare: Path, installed: Path) -> None:
    """Calls of `register` have no effect, and Spark logs no warning about them."""
    script = tmp_path / "script.py"
    session = 'spark = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false").getOrCreate()\n'
    registration = "from penstock import connector\nconnector.register(spark)\nconnector.register(spark)\n"
    registration += "folder, queue = folder + '/registered', 'registered'\n"
    script.write_text(PREAMBLE + session + ROUND_TRIP + registration + ROUND_TRIP)
    done = ended([BASE_PYTHON, str(script), orders.url, str(tmp_path), ""], env=environment(installed, bare), cwd=tmp_path)
    assert [json.loads(line) for line in done.stdout.splitlines()] == [DONE, DONE]
    assert " WARN " in done.stderr  # warnings are visible
    assert "registered data source" not in done.stderr


def test_the_python_of_path_is_not_the_programs(tmp_path: Path, bare: Path, installed: Path) -> None:
    """`.venv/bin/python job.py` without an activated environment: `register` names the setting, before any task fails."""
    python = tmp_path / "python3"
    python.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {BASE_PYTHON} -S "$@"\n')
    python.chmod(0o755)
    script = tmp_path / "script.py"
    session = 'spark = SparkSession.builder.master("local[1]").config("spark.ui.enabled", "false").getOrCreate()\n'
    attempt = "try:\n    penstock.register(spark)\nexcept penstock.PenstockError as error:\n    print(penstock.explain(error))\n"
    script.write_text(f"import penstock\nfrom pyspark.sql import SparkSession\n{session}{attempt}")
    env = environment(installed, bare, PATH=os.pathsep.join((str(tmp_path), os.environ["PATH"])))
    del env["PYSPARK_PYTHON"], env["PYSPARK_DRIVER_PYTHON"]
    [sentence] = ended([BASE_PYTHON, str(script)], env=env, cwd=tmp_path).stdout.splitlines()
    assert sentence == (
        f"Spark's workers run python3 ({python}), which lacks penstock-mq and pyarrow. Set PYSPARK_PYTHON={BASE_PYTHON} before"
        " Spark starts, or activate the environment of this program"
    )


@pytest.mark.timeout(400)
@pytest.mark.parametrize("server_has_it", [False, True])
def test_under_spark_connect_it_ships_itself(
    orders: Broker, tmp_path: Path, bare: Path, installed: Path, server_has_it: bool
) -> None:
    """The server may have the connector installed or not."""
    port = free_port()
    server = [
        str(SPARK_HOME / "bin" / "spark-submit"),
        *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--name", "connect"),
        *("--conf", f"spark.connect.grpc.binding.port={port}", "--conf", "spark.connect.grpc.binding.address=127.0.0.1"),
        *("--conf", "spark.ui.enabled=false", "--master", "local[2]", "spark-internal"),
    ]
    env = environment(*([installed] if server_has_it else []), bare)
    script = tmp_path / "script.py"
    session = (
        "spark = SparkSession.builder.remote(where).getOrCreate()\nfrom penstock import connector\nconnector.register(spark)\n"
    )
    script.write_text(PREAMBLE + session + ROUND_TRIP)
    with process(server, env=env, log=tmp_path / "connect.log", ready=lambda: listens(port)):
        client = environment(installed, bare)
        # If it is not installed, the AMQP library that discovers the Flight endpoint must also be shipped.
        url = orders.url if server_has_it else orders.amqp_url
        result = run([BASE_PYTHON, str(script), url, str(tmp_path), f"sc://127.0.0.1:{port}"], env=client, cwd=tmp_path)
    assert result == DONE


@pytest.mark.cluster
@pytest.mark.timeout(500)
def test_on_a_standalone_cluster_with_py_files(orders: Broker, tmp_path: Path, bare: Path) -> None:
    master_port, web_port = free_port(), free_port()
    master = f"spark://127.0.0.1:{master_port}"
    env = environment(bare, SPARK_WORKER_DIR=str(tmp_path / "work"))
    starter = str(SPARK_HOME / "bin" / "spark-class")
    archive = tmp_path / "penstock.zip"
    pyfiles.write(archive)
    script = tmp_path / "script.py"
    session = "spark = SparkSession.builder.getOrCreate()\nfrom penstock import connector\nassert '.zip' in connector.__file__\n"
    session += "connector.register(spark)\n"
    script.write_text(PREAMBLE + session + ROUND_TRIP)

    def worker(name: str) -> Any:
        arguments = [starter, "org.apache.spark.deploy.worker.Worker", "--host", "127.0.0.1", "--cores", "1", "--memory", "1g"]
        arguments += ["--webui-port", str(free_port()), master]
        log = tmp_path / f"{name}.log"
        return process(arguments, env=env, log=log, ready=lambda: "Successfully registered" in log.read_text())

    serve = [starter, "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", str(master_port)]
    serve += ["--webui-port", str(web_port)]
    submit = [
        str(SPARK_HOME / "bin" / "spark-submit"),
        *("--master", master, "--py-files", str(archive), "--conf", "spark.ui.enabled=false"),
        *("--executor-memory", "800m", "--conf", "spark.driver.host=127.0.0.1"),
    ]
    with (
        process(serve, env=env, log=tmp_path / "master.log", ready=lambda: listens(master_port)),
        worker("one"),
        worker("two"),
    ):
        result = run([*submit, str(script), orders.amqp_url, str(tmp_path), ""], env=env, cwd=tmp_path)
    assert result == DONE
