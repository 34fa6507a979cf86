"""The last step of the demo: a broker under load is killed, its directory is deleted, and it is restored from its copy.

The copy is in S3 if a server is available, and otherwise in a folder next to the lost one.

Two clients of `penstock.connect` send and one receives throughout. The copy is synchronous, so it contains every confirmed
message. The queue has a duplicate window: a message that is sent again because its confirmation was lost is stored once.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

from penstock import AcknowledgeMode, Backoff, connect
from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from .output import Output

QUEUE, BUCKET = "orders", "penstock"
SENDERS = 2
#: Seconds under load, before the loss and after it.
LOAD_S = 2.0
#: Seconds until the S3 server accepts connections, and until the clients are connected again.
LIMIT_S = 60.0
BACKOFF = Backoff(most_s=0.5)  # a short wait for the audience of the demo


def run(work: Path, s3_server: Path | None, output: Output) -> bool:
    """Lose a machine and restore it; return True if every confirmed message exists once."""
    output.step("A machine is lost with its disk")
    work.mkdir(parents=True)
    with contextlib.nullcontext() if s3_server is None else _running(s3_server, work, output):
        url = str(work / "copy") if s3_server is None else f"s3://{BUCKET}/broker"
        broker = Broker(work / "machine-1", copy_url=url, copy="sync", archive="off").start()
        try:
            return _lose(broker, work, url, output)
        finally:
            broker.kill()


def _lose(broker: Broker, work: Path, url: str, output: Output) -> bool:
    broker.declare(QUEUE, duplicateWindow=1_000_000)
    output.fact(f"broker: process {broker.pid}, {broker.amqp_url}")
    output.fact(f"copy_url={url}, copy=sync: a message is confirmed when it is also in the copy")
    clients = Clients(broker.amqp_url)
    try:
        with output.busy(f"{SENDERS} clients send, and one receives"):
            clients.await_more(1, 1)
            time.sleep(LOAD_S)
        output.kill(f"the broker (process {broker.pid}), after {clients.confirmed():,} confirmed messages")
        broker.kill()
        shutil.rmtree(broker.data_dir)
        output.fact(f"{broker.data_dir.name} is deleted")
        began = time.monotonic()
        directory = work / "machine-2"
        output.fact(f"penstock restore --from {url} --data {directory.name} --take-over")
        command = [sys.executable, "-m", "penstock", "restore", "--from", url, "--data", str(directory), "--take-over"]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        port = urlsplit(broker.amqp_url).port
        with Broker(directory, copy_url=url, copy="sync", archive="off", amqp_port=port) as restored:
            output.fact(f"restored and ready at the same address after {time.monotonic() - began:.1f} s: process {restored.pid}")
            with output.busy("the clients connect again, and continue"):
                clients.await_more(clients.confirmed() + 1, clients.received + 1)
                output.fact(f"the clients are connected again after {time.monotonic() - began:.1f} s")
                time.sleep(LOAD_S)
                clients.stop()
            return _compare(restored, clients, output)
    finally:
        clients.stop()


def _compare(broker: Broker, clients: Clients, output: Output) -> bool:
    with Client(broker.url) as client:
        batches = client.get(op="browse", queue=QUEUE, columns=["messageId"], states=["available", "acquired", "archived"])
        stored = Counter(name for batch in batches for name in batch["messageId"].to_pylist())
    lost = sum(name not in stored for names in clients.sent for name in names)
    duplicated = sum(count > 1 for count in stored.values())
    (output.bad if lost or duplicated else output.good)(
        f"{clients.confirmed():,} messages were confirmed to the senders: {lost} of them are lost, {duplicated} are stored twice"
    )
    different = len(clients.received_names)
    output.fact(f"the receiver has acknowledged {different:,} different messages")
    if again := clients.received - different:
        output.fact(f"{again:,} of them were delivered again, because their first acknowledgement was lost with the machine")
    return not lost and not duplicated


class Clients:
    """Senders and a receiver, each in a thread, until `stop`. `sent` has the ids of the confirmed messages by sender, and
    `received_names` those of the acknowledged ones."""

    def __init__(self, url: str) -> None:
        self.sent: list[list[str]] = [[] for _ in range(SENDERS)]
        self.received = 0
        self.received_names: set[object] = set()
        self._url, self._stop = url, threading.Event()
        work = [(self._send, number) for number in range(SENDERS)] + [(self._receive, 0)]
        self._threads = [threading.Thread(target=self._run, args=task, daemon=True) for task in work]
        for thread in self._threads:
            thread.start()

    def confirmed(self) -> int:
        """Count the confirmed messages."""
        return sum(map(len, self.sent))

    def await_more(self, confirmed: int, received: int) -> None:
        """Wait until that many messages are confirmed and that many received. Raises TimeoutError."""
        end = time.monotonic() + LIMIT_S
        while self.confirmed() < confirmed or self.received < received:
            if time.monotonic() > end:
                raise TimeoutError(f"after {LIMIT_S:g} s, {self.confirmed()} messages are confirmed and {self.received} received")
            time.sleep(0.01)

    def stop(self) -> None:
        """Stop the threads."""
        self._stop.set()
        for thread in self._threads:
            thread.join(LIMIT_S)

    def _run(self, work: Callable[[int], None], number: int) -> None:
        while not self._stop.is_set():
            with contextlib.suppress(errors.PenstockError):  # the next round connects again
                work(number)

    def _send(self, number: int) -> None:
        sent = self.sent[number]
        with connect(self._url, reconnect=BACKOFF) as connection:
            producer = connection.session().producer(QUEUE)
            while not self._stop.is_set():
                name = f"{number}-{len(sent)}"
                message = amqp.Message(properties=Properties(message_id=name), data=[name.encode()])
                producer.send(message)  # returns once the broker has confirmed it
                sent.append(name)

    def _receive(self, _: int) -> None:
        with connect(self._url, reconnect=BACKOFF) as connection:
            consumer = connection.session(AcknowledgeMode.INDIVIDUAL).consumer(QUEUE)
            while not self._stop.is_set():
                message = consumer.receive(0.2)
                if message is not None:
                    message.acknowledge()
                    self.received += 1
                    self.received_names.add(message.message_id)


@contextlib.contextmanager
def _running(program: Path, work: Path, output: Output) -> Iterator[None]:
    """Run the S3 server on a free port of loopback, with its credentials in the environment."""
    (work / "s3" / BUCKET).mkdir(parents=True)
    with socket.create_server(("127.0.0.1", 0)) as probe:
        port = probe.getsockname()[1]
    access, secret = "penstock-demo", "penstock-secret"
    before = dict(os.environ)
    with open(work / "s3.log", "wb") as log:
        server = subprocess.Popen(
            [str(program), "--port", f"127.0.0.1:{port}", "posix", str(work / "s3")],
            env={**before, "ROOT_ACCESS_KEY": access, "ROOT_SECRET_KEY": secret},
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
        )
    os.environ.update(AWS_ENDPOINT_URL=f"http://127.0.0.1:{port}", AWS_REGION="us-east-1")
    os.environ.update(AWS_ACCESS_KEY_ID=access, AWS_SECRET_ACCESS_KEY=secret)
    try:
        _await_port(port, server)
        output.fact(f"an S3 server: process {server.pid}, {program.name}, http://127.0.0.1:{port}")
        yield
    finally:
        os.environ.clear()
        os.environ.update(before)
        server.terminate()
        server.wait()


def _await_port(port: int, server: subprocess.Popen[bytes]) -> None:
    """Wait until the server accepts connections. Raises TimeoutError, or RuntimeError if the server has ended."""
    end = time.monotonic() + LIMIT_S
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if server.poll() is not None:
                raise RuntimeError(f"the S3 server ended with exit code {server.returncode}; see s3.log") from None
            if time.monotonic() > end:
                raise TimeoutError(f"the S3 server accepts no connections after {LIMIT_S:g} s") from None
            time.sleep(0.02)
        else:
            return
