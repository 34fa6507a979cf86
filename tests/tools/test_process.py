"""`Broker`: a child that starts, stops, dies, comes back at the same address, and never outlives its parent."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .conftest import enqueue

pytestmark = pytest.mark.usefixtures("interpreters")


def test_it_is_there_inside_the_block_and_gone_after_it(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        pid = broker.pid
        assert broker.running
        assert broker.url == broker.flight_url
        assert broker.url.startswith("grpc://127.0.0.1:")
        assert broker.data_dir == tmp_path / "data"
        broker.declare("q")
        broker.declare("q")
        with Client(broker.url) as client:
            assert [queue["queue"] for queue in client.call("queue.list")["queues"]] == ["q"]
    assert not broker.running
    with pytest.raises(ProcessLookupError):
        os.kill(pid, 0)


def test_killed_and_started_again_it_has_its_messages_and_its_address(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        url, pid = broker.url, broker.pid
        with Client(url) as client:
            enqueue(client, "q", b"one", b"two")
        broker.kill()
        assert not broker.running
        broker.start()
        assert (broker.url, broker.pid != pid) == (url, True)
        with Client(url) as client:
            assert client.call("queue.stat", queue="q")["available"] == 2


def test_stop_twice_and_start_again(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data").start()
    broker.stop()
    broker.stop()
    with broker:
        assert broker.running
    assert not broker.running


def test_before_its_start_it_says_what_to_do(tmp_path: Path) -> None:
    broker = Broker(tmp_path / "data")
    with pytest.raises(errors.InvalidRequest, match=r"call start\(\)"):
        _ = broker.url
    with pytest.raises(errors.InvalidRequest, match="not running"):
        _ = broker.pid


def test_options_are_checked_where_they_are_written(tmp_path: Path) -> None:
    with pytest.raises(errors.InvalidRequest, match="fsync cannot be 'maybe'"):
        Broker(tmp_path / "data", fsync="maybe")
    with pytest.raises(errors.InvalidRequest, match=r"colour is not an option; allowed are .*segment_bytes"):
        Broker(tmp_path / "data", colour="blue")
    assert not (tmp_path / "data").exists()


def test_a_config_file_is_used_and_options_win(tmp_path: Path, broker: Broker) -> None:
    config = tmp_path / "penstock.toml"
    config.write_text(f'flight_port = {broker.url.rpartition(":")[2]}\nfsync = "never"\n')
    with pytest.raises(errors.PenstockError, match="is in use"):
        Broker(tmp_path / "other", config=config).start()
    with Broker(tmp_path / "other", config=config, flight_port=0) as second:
        assert second.url != broker.url


def test_what_keeps_it_from_starting_is_raised_as_it_is(tmp_path: Path, broker: Broker) -> None:
    with pytest.raises(errors.DirectoryLocked, match=str(broker.pid)):
        Broker(broker.data_dir).start()


def test_a_second_start_is_refused(broker: Broker) -> None:
    with pytest.raises(errors.InvalidRequest, match="running already"):
        broker.start()


def test_an_error_in_the_block_is_not_hidden_by_a_broker_that_died(tmp_path: Path) -> None:
    def crash() -> None:
        with Broker(tmp_path / "data") as broker:
            os.kill(broker.pid, signal.SIGKILL)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        crash()


def test_it_does_not_outlive_a_parent_that_is_killed(tmp_path: Path) -> None:
    program = "import sys, time; from penstock import Broker; print(Broker(sys.argv[1]).start().pid, flush=True); time.sleep(60)"
    parent = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path / "data")], stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True
    )
    assert parent.stdout is not None
    pid = int(parent.stdout.readline())
    parent.kill()
    parent.communicate()
    until(lambda: not _alive(pid), "the broker has also ended")


def test_programs_of_the_tests_do_not_outlive_tests_that_are_killed(repository: Path) -> None:
    """With their child processes, such as a shell's."""
    program = (
        "import sys, time; from tests.programs import Group; shell = Group(['sh', '-c', 'sleep 600 & echo $!; wait'], stdout=1);"
        " print(shell.process.pid, flush=True); time.sleep(600)"
    )
    environment = {**os.environ, "PYTHONPATH": str(repository)}
    parent = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, env=environment, text=True)
    assert parent.stdout is not None
    pids = [int(parent.stdout.readline()) for _ in range(2)]
    parent.kill()
    parent.wait()
    until(lambda: not any(map(_alive, pids)), "the programs have also ended")
    parent.stdout.close()


def _alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_its_ports_are_nobody_elses_while_it_is_down(tmp_path: Path) -> None:
    with Broker(tmp_path / "data") as broker:
        urls = (broker.flight_url, broker.amqp_url)
        for end in (broker.kill, broker.stop):
            end()
            for url in urls:
                with socket.socket() as listener, pytest.raises(OSError, match="in use"):
                    listener.bind(("127.0.0.1", int(url.rpartition(":")[2])))  # as a connection that asks for any port would
            broker.start()
            assert (broker.flight_url, broker.amqp_url) == urls
            broker.declare("q")
