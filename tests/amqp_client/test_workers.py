"""Workers (U8): handlers that return, raise, settle or hang; several together; a stop that waits for them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import threading
import urllib.request
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

import penstock
from penstock.broker_core import errors
from penstock.broker_core.client.app import AcknowledgeMode, Connection, ReceivedMessage
from penstock.broker_core.client.app.program import at_this_host
from penstock.broker_core.client.app.workers import Worker, run_all
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from ..waiting import until
from .applications import LIMIT_S, connect, stat


def fill(broker: Broker, connection: Connection, queue: str, count: int, **options: Any) -> None:
    broker.declare(queue, **options)
    for number in range(count):
        connection.send(queue, json=number)


def worked(worker: Worker, connection: Connection, done: threading.Event) -> None:
    """Run a worker until `done` is set."""
    stop = threading.Event()
    thread = threading.Thread(target=worker.run, args=(connection, stop))
    thread.start()
    assert done.wait(LIMIT_S)
    stop.set()
    thread.join(LIMIT_S)
    assert not thread.is_alive()


def test_each_message_is_handled_once_and_so_many_at_a_time(broker: Broker, connection: Connection) -> None:
    fill(broker, connection, "at-once", 40)
    lock, done, together = threading.Lock(), threading.Event(), threading.Barrier(4)
    begun, running, most = [0], [0], [0]
    seen: list[int] = []

    @penstock.worker("at-once", concurrency=4)
    def handle(message: ReceivedMessage) -> None:
        with lock:
            begun[0] += 1
            first = begun[0] <= 4
            running[0] += 1
            most[0] = max(most[0], running[0])
        if first:
            together.wait(LIMIT_S)  # four are in work together, or this breaks
        with lock:
            running[0] -= 1
            seen.append(message.json())
            if len(seen) == 40:
                done.set()

    worked(handle, connection, done)
    assert sorted(seen) == list(range(40))
    assert most == [4]
    assert (stat(broker, "at-once")["available"], stat(broker, "at-once")["archived"]) == (0, 40)
    assert handle.counts.accepted == 40


def test_a_handler_that_raises_is_tried_again_and_then_rejected(broker: Broker, connection: Connection) -> None:
    """Two further attempts, then a dead letter with the error as the reason. Other messages continue meanwhile."""
    broker.declare("dead")
    fill(broker, connection, "poisoned", 3, deadLetterQueue="dead")
    done = threading.Event()
    attempts: list[int] = []

    @penstock.worker("poisoned", retries=2, retry_after=timedelta(milliseconds=1))
    def handle(message: ReceivedMessage) -> None:
        if message.json() == 1:
            attempts.append(message.delivery_count)
            raise ValueError("not an order")
        if len(attempts) >= 3 or message.json() == 0:
            return

    with connect(broker.amqp_url) as watching:
        stop = threading.Event()
        thread = threading.Thread(target=handle.run, args=(connection, stop))
        thread.start()
        (dead,) = watching.queue("dead").receive(limit=1, timeout=LIMIT_S)
        done.set()
        stop.set()
        thread.join(LIMIT_S)
    assert attempts == [0, 1, 2]
    assert dead.json() == 1
    assert "ValueError: not an order" in str(dead.message.message_annotations)
    assert (handle.counts.retried, handle.counts.rejected) == (2, 1)


def test_an_async_handler_and_one_that_settles_by_itself(broker: Broker, connection: Connection) -> None:
    fill(broker, connection, "async", 2)
    done = threading.Event()

    @penstock.worker("async")
    async def handle(message: ReceivedMessage) -> None:
        if message.json() == 0:
            message.reject("no")
        else:
            done.set()

    worked(handle, connection, done)
    assert (handle.counts.accepted, handle.counts.other) == (1, 1)
    assert stat(broker, "async")["archived"] == 2


def test_what_a_wrapped_async_handler_returns_is_awaited(broker: Broker, connection: Connection) -> None:
    """An ordinary function that returns a coroutine."""
    fill(broker, connection, "wrapped", 1)
    done = threading.Event()

    async def inner(message: ReceivedMessage) -> None:
        done.set()

    worked(penstock.worker("wrapped")(lambda message: inner(message)), connection, done)
    assert stat(broker, "wrapped")["archived"] == 1


def test_idle_threads_take_over_the_messages_that_wait_at_a_busy_one(broker: Broker, connection: Connection) -> None:
    fill(broker, connection, "one-is-slow", 12)
    done, others_are_done = threading.Event(), threading.Event()
    seen: dict[int, int] = {}

    @penstock.worker("one-is-slow", concurrency=4)
    def handle(message: ReceivedMessage) -> None:
        if message.json() == 0:
            assert others_are_done.wait(LIMIT_S)
            done.set()
            return
        seen[message.json()] = message.delivery_count
        if len(seen) == 11:
            others_are_done.set()

    worked(handle, connection, done)
    assert seen == dict.fromkeys(range(1, 12), 0), "returned messages are not failed attempts"


@pytest.mark.parametrize(
    ("options", "group"), [({"groups": "held"}, "a"), ({"groups": "sticky"}, "b"), ({"consumers": "single"}, None)]
)
def test_a_takeover_keeps_the_order_of_groups_and_of_a_single_active_consumer(
    broker: Broker, connection: Connection, options: dict[str, Any], group: str | None
) -> None:
    queue = f"in-order-{group}"
    broker.declare(queue, **options)
    connection.queue(queue).send_many(json=range(4), group_id=group)
    done = threading.Event()
    seen: list[int] = []

    @penstock.worker(queue, concurrency=2)
    def handle(message: ReceivedMessage) -> None:
        if message.json() == 0:
            until(lambda: message.consumer._gives_back, "the idle thread relieves this one")
            until(lambda: not message.consumer.arrivals, "the messages are returned")
        seen.append(message.json())
        if len(seen) == 4:
            done.set()

    worked(handle, connection, done)
    assert seen == [0, 1, 2, 3]


def test_a_thread_that_is_busy_again_and_again_receives_what_it_gave_back(broker: Broker, connection: Connection) -> None:
    """A consumer that has given back its messages gets credit again by its next `receive`, also while it gives back."""
    fill(broker, connection, "given-back", 6)
    with connection.session(AcknowledgeMode.INDIVIDUAL) as session:
        consumer = session.consumer("given-back", prefetch=2)
        seen = []
        for _ in range(6):
            message = consumer.receive(LIMIT_S)
            assert message is not None
            consumer.give_back()
            consumer.give_back()
            seen.append((message.json(), message.delivery_count))
            message.accept()
    assert seen == [(number, 0) for number in range(6)]


def test_a_handler_that_outlives_the_grace_gives_its_message_back(broker: Broker, connection: Connection) -> None:
    fill(broker, connection, "hanging", 1)
    begun, release, stop = threading.Event(), threading.Event(), threading.Event()

    @penstock.worker("hanging")
    def handle(message: ReceivedMessage) -> None:
        begun.set()
        stop.set()
        release.wait(LIMIT_S)

    with connect(broker.amqp_url) as own:
        assert run_all([handle], own, stop, grace_s=0.0) is False
        assert begun.is_set()
    (again,) = connection.queue("hanging").receive(limit=1, timeout=LIMIT_S)
    assert again.delivery_count == 1
    release.set()


def test_a_queue_that_is_gone_ends_the_worker_with_its_error(broker: Broker, connection: Connection) -> None:
    @penstock.worker("no-such-queue", concurrency=2)
    def handle(message: ReceivedMessage) -> None: ...

    with pytest.raises(errors.NotFound):
        handle.run(connection, threading.Event())


def test_wrong_values_are_refused_where_they_stand() -> None:
    for wrong in ({"concurrency": 0}, {"retries": -1}, {"retry_after": 9.0, "max_retry_after": 1.0}, {"retry_after": "1 s"}):
        with pytest.raises(errors.InvalidRequest):
            penstock.worker("q", **wrong)(print)


def test_a_worker_can_be_called_by_a_test() -> None:
    @penstock.worker("orders")
    def handle(message: str) -> str:
        return message.upper()

    assert handle("a") == "A"


# --- penstock work


def test_the_worker_of_the_documents_works(repository: Path, tmp_path: Path, broker: Broker, connection: Connection) -> None:
    """docs/clients.md: the unchanged function."""
    (text,) = re.findall(
        r"```python\n(.*?)```", (repository / "docs" / "clients.md").read_text().partition("A **worker**")[2], re.S
    )[:1]
    (tmp_path / "shop.py").write_text(text)
    fill(broker, connection, "orders", 1)
    process = work(tmp_path, broker, "shop:handle")
    assert process.stdout is not None
    assert process.stdout.readline() == "0\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0


MODULE = """
import penstock

@penstock.worker("{queue}", concurrency=2)
def handle(message):
    print("handled", message.json(), flush=True)

plain = print
"""


def work(folder: Path, broker: Broker, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "penstock", "work", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=folder,
        env={**os.environ, "PENSTOCK_URL": broker.amqp_url},
    )


def test_penstock_work_handles_until_it_is_told_to_stop(tmp_path: Path, broker: Broker, connection: Connection) -> None:
    fill(broker, connection, "shop", 3)
    (tmp_path / "shop.py").write_text(MODULE.format(queue="shop"))
    process = work(tmp_path, broker, "shop:handle", "--metrics-port", "0", "--grace", "inf")
    assert process.stdout is not None
    assert process.stderr is not None
    assert sorted(process.stdout.readline() for _ in range(3)) == [f"handled {number}\n" for number in range(3)]
    url = next(match[0] for line in process.stderr if (match := re.search(r"http://127\.0\.0\.1:\d+/metrics", line)))
    with Client(broker.url) as client:
        names = {entry["container"] for entry in client.call("connection.list")["connections"]}
    assert at_this_host("shop:handle") in names
    with urllib.request.urlopen(url, timeout=LIMIT_S) as answer:
        assert b'penstock_worker_messages_total{outcome="accepted",queue="shop"}' in answer.read()
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
    assert "shop: 3 accepted, 0 retried, 0 rejected" in log
    assert stat(broker, "shop")["archived"] == 3


def test_a_handler_that_outlives_a_sigterm_is_left_behind(tmp_path: Path, broker: Broker, connection: Connection) -> None:
    """The process still ends and reports the handler, and the message comes again."""
    fill(broker, connection, "stuck", 1)
    begins = 'import threading\nimport penstock\n\n@penstock.worker("stuck")\ndef handle(message):\n'
    (tmp_path / "shop.py").write_text(f"{begins}    print('begun', flush=True)\n    threading.Event().wait()\n")
    process = work(tmp_path, broker, "shop:handle", "--grace", "0.1")
    assert process.stdout is not None
    assert process.stdout.readline() == "begun\n"
    process.send_signal(signal.SIGTERM)
    _, log = process.communicate(timeout=LIMIT_S)
    assert process.returncode == 1
    assert "a handler did not end within 0.1 s of the stop; its message is delivered again" in log
    (again,) = connection.queue("stuck").receive(limit=1, timeout=LIMIT_S)
    assert again.delivery_count == 1


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("shop", "give MODULE:FUNCTION"),
        (".shop:handle", "give MODULE:FUNCTION"),
        ("nowhere:handle", "there is no module 'nowhere'"),
        ("shop:nothing", "shop has no 'nothing'"),
        ("shop:plain", 'decorate it with @penstock.worker("queue")'),
    ],
)
def test_what_is_no_worker_is_said(tmp_path: Path, broker: Broker, name: str, reason: str) -> None:
    (tmp_path / "shop.py").write_text(MODULE.format(queue="shop"))
    process = work(tmp_path, broker, name)
    _, complaint = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, reason in complaint) == (2, True), complaint


def test_a_mistake_in_the_module_is_not_blamed_on_the_name(tmp_path: Path, broker: Broker) -> None:
    (tmp_path / "shop.py").write_text(MODULE.format(queue="shop") + "plain.nothing\n")
    process = work(tmp_path, broker, "shop:handle")
    _, complaint = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, "shop has no 'handle'" in complaint) == (1, False), complaint
    assert 'shop.py", line 9' in complaint


@pytest.mark.parametrize(
    "raised", ["OSError(28, 'No space left on device', 'shop.log')", "BrokenPipeError('nobody reads')", "EOFError('cut off')"]
)
def test_a_module_that_cannot_be_imported_is_not_taken_for_an_output_that_cannot_be_written(
    tmp_path: Path, broker: Broker, raised: str
) -> None:
    """Nor for the end of a pipe, or of the answers to questions."""
    (tmp_path / "shop.py").write_text(MODULE.format(queue="shop") + f"raise {raised}\n")
    process = work(tmp_path, broker, "shop:handle")
    _, complaint = process.communicate(timeout=LIMIT_S)
    assert (process.returncode, f"shop cannot be imported: {eval(raised)}" in complaint) == (1, True), complaint
    assert 'shop.py", line 9' in complaint
