"""Texts for mistakes that users made, where no other test holds them."""

from __future__ import annotations

import inspect
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.broker_core.server.child import Broker
from penstock.connector.workers import _Traceback

from .conftest import Run


def test_a_pattern_is_no_name_of_a_queue(penstock: Run, broker: Broker) -> None:
    """`orders*` was a queue of that name, and its permissions then meant others."""
    done = penstock("queue", "declare", "orders*", url=broker.url)
    assert done.returncode in (1, 2)
    assert "'orders*': '*' stands for any text in permissions and policies and cannot be in a name" in done.stderr


def test_a_message_for_a_queue_that_is_not_there_is_not_lost_in_silence(penstock: Run, broker: Broker) -> None:
    done = penstock("send", "oders", "--json", url=broker.amqp_url)
    assert done.returncode == 1
    assert "there is no queue 'oders': declare it with `penstock queue declare" in done.stderr


def test_the_wrong_url_for_messages_names_the_right_one(penstock: Run, broker: Broker) -> None:
    done = penstock("send", "orders", url=broker.url)
    assert done.returncode == 2
    assert "messages go over AMQP, so it must be amqp://HOST[:PORT]" in done.stderr


def test_a_missing_right_is_named(tmp_path: Path, penstock: Run) -> None:
    data, word = tmp_path / "broker", tmp_path / "word"
    word.write_text("correct horse battery\n")
    data.mkdir(mode=0o700)
    assert penstock("user", "add", "bob", "--data", str(data), "--password-file", str(word)).returncode == 0
    with Broker(data, fsync="never", http_port=None) as broker:
        as_bob = ("--user", "bob", "--password-file", str(word))
        seen = penstock("queue", "list", *as_bob, url=broker.url).stdout
        assert seen == "no queues on which bob has a right; `penstock permit` gives one\n"
        done = penstock("queue", "purge", "orders", *as_bob, url=broker.url)
    assert (
        "user 'bob' may not purge queue 'orders': that needs the right admin there, which an administrator gives" in done.stderr
    )


#: A thread obeys the signals, as in a broker. The second one comes when the first has begun the stop.
TWICE = """
import os, signal, sys, threading
from penstock.broker_core.cli import serve
serve.SAME_SIGNAL_S = float(sys.argv[1])
signal.pthread_sigmask(signal.SIG_BLOCK, (signal.SIGTERM, signal.SIGINT, signal.SIGHUP))
stop = threading.Event()
obeying = threading.Thread(target=serve._obey_signals, args=(stop, threading.Event(), lambda: None), daemon=True)
obeying.start()
os.kill(os.getpid(), signal.SIGTERM)
stop.wait()
os.kill(os.getpid(), signal.SIGTERM)
obeying.join(1)
"""


@pytest.mark.parametrize(("seconds", "code"), [("3600", 0), ("0", 130)])
def test_a_second_signal_within_a_second_is_no_crash(seconds: str, code: int) -> None:
    """`timeout 60 penstock serve` signals the process, and then its group."""
    assert subprocess.run([sys.executable, "-c", TWICE, seconds], timeout=60, check=False).returncode == code


def test_the_port_of_serve_is_one_of_three(penstock: Run) -> None:
    done = penstock("serve", "--port", "0")
    assert "unrecognized arguments: --port 0; did you mean --amqp-port, --flight-port or --http-port?" in done.stderr


def test_a_worker_whose_socket_spark_has_closed_ends_without_a_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    """conf/spark.conf: sockets in files, which Spark closes after a LIMIT."""
    for error, shown in ((BrokenPipeError("gone"), False), (ValueError("wrong"), True)):
        try:
            raise error
        except (BrokenPipeError, ValueError):
            _Traceback().print_exc()
        assert ("Traceback" in capsys.readouterr().err) is shown
    daemon = pytest.importorskip("pyspark.daemon")
    assert "traceback.print_exc()" in inspect.getsource(daemon)  # this is where Spark prints it
