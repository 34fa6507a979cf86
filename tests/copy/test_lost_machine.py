"""D7: a machine is lost under load, with its directory. AMQP clients of several kinds continue at the broker that was restored
from the copy."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from proton import Message as ProtonMessage
from proton import ProtonException
from proton.utils import BlockingConnection

from penstock import AcknowledgeMode, Broker, connect
from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp.performatives import Properties
from penstock.broker_core.client.app import InDoubt, RolledBack
from penstock.broker_core.client.flight import Client

from ..flight.helpers import browse
from ..s3 import BUCKET, S3Server, environment
from ..waiting import until

MIB = 1 << 20
ENOUGH = 40  # messages of each client, before the loss and after it
LIMIT_S = 20.0

#: Refusals and losses after which a client tries again: the broker is gone, or another one.
LOST = (errors.PenstockError, ProtonException, OSError, TimeoutError)


class Load:
    """Clients that work until they are stopped, each in its own thread, through all failures of the broker."""

    def __init__(self, url: str) -> None:
        self.url = url
        self.confirmed: dict[str, set[str]] = {}
        self._stop = threading.Event()
        self._threads: list[threading.Thread] = []
        self.failures: list[BaseException] = []
        for name, work in (
            ("ours", self._ours),
            ("transactions", self._transactions),
            ("proton", self._proton),
            ("receives", self._receives),
            ("proton-receives", self._proton_receives),
        ):
            self.confirmed[name] = set()
            thread = threading.Thread(target=self._run, args=(name, work))
            thread.start()
            self._threads.append(thread)

    def _run(self, name: str, work: Callable[[str], None]) -> None:
        while not self._stop.is_set():
            try:
                work(name)
            except LOST:
                self._stop.wait(0.05)  # and connect again
            except BaseException as error:
                self.failures.append(error)
                raise

    def _next(self, name: str) -> str:
        return f"{name}-{len(self.confirmed[name])}"  # one that was not confirmed is sent again, under the same message id

    def _ours(self, name: str) -> None:
        with connect(self.url, timeout_s=LIMIT_S) as connection:
            producer = connection.session().producer("q")
            while not self._stop.is_set():
                text = self._next(name)
                producer.send(message(text))
                self.confirmed[name].add(text)

    def _transactions(self, name: str) -> None:
        with connect(self.url, timeout_s=LIMIT_S) as connection:
            session = connection.session(AcknowledgeMode.TRANSACTED)
            producer = session.producer("q")
            while not self._stop.is_set():
                first = len(self.confirmed[name])
                texts = [f"{name}-{number}" for number in range(first, first + 3)]
                with contextlib.suppress(InDoubt, RolledBack):
                    for text in texts:
                        producer.send(message(text))
                    session.commit()
                    self.confirmed[name].update(texts)

    def _proton(self, name: str) -> None:
        connection = BlockingConnection(self.url, timeout=LIMIT_S)
        try:
            sender = connection.create_sender("q")
            while not self._stop.is_set():
                text = self._next(name)
                sender.send(ProtonMessage(id=text, body=text, durable=True))
                self.confirmed[name].add(text)
        finally:
            with contextlib.suppress(*LOST):
                connection.close()

    def _receives(self, name: str) -> None:
        with connect(self.url, timeout_s=LIMIT_S) as connection:
            consumer = connection.session(AcknowledgeMode.INDIVIDUAL).consumer("q", prefetch=10)
            while not self._stop.is_set():
                delivery = consumer.receive(0.1)
                if delivery is not None:
                    delivery.acknowledge()
                    self.confirmed[name].add(delivery.message.properties.message_id)

    def _proton_receives(self, name: str) -> None:
        connection = BlockingConnection(self.url, timeout=LIMIT_S)
        try:
            receiver = connection.create_receiver("q", credit=10)
            while not self._stop.is_set():
                delivery = receiver.receive(timeout=LIMIT_S)
                receiver.accept()
                self.confirmed[name].add(delivery.id)
        finally:
            with contextlib.suppress(*LOST):
                connection.close()

    def counts(self) -> dict[str, int]:
        return {name: len(texts) for name, texts in self.confirmed.items()}

    def await_more(self, than: dict[str, int]) -> None:
        until(
            lambda: self.failures or all(count >= than[name] + ENOUGH for name, count in self.counts().items()),
            "each client has enough confirmed",
            limit_s=60,
        )
        assert self.failures == []

    def stop(self) -> None:
        self._stop.set()
        for thread in self._threads:
            thread.join(60)
            assert not thread.is_alive()


def message(text: str) -> amqp.Message:
    return amqp.Message(properties=Properties(message_id=text), value=text)


def start(directory: Path, url: str, at: Broker | None = None) -> Broker:
    ports = {} if at is None else {f"{plane}_port": urlsplit(getattr(at, f"{plane}_url")).port for plane in ("amqp", "flight")}
    return Broker(
        directory, copy_url=url, copy="sync", archive="off", segment_bytes=1 << 20, snapshot_every_bytes=1 << 20, **ports
    )


@pytest.mark.parametrize("how", ["burnt", "cut off"])
def test_clients_go_on_at_the_restored_broker(how: str, s3: S3Server, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`cut off`: the old broker still runs when it is declared lost; it is refused at its next write and stops."""
    for name, value in environment(s3.port).items():
        monkeypatch.setenv(name, value)
    url = f"s3://{BUCKET}/lost-machine-{how.replace(' ', '-')}"
    with contextlib.ExitStack() as stack:
        old = start(tmp_path / "old", url).start()
        stack.callback(old.kill)
        old.declare("q", duplicateWindow=100_000)
        load = Load(old.amqp_url)
        stack.callback(load.stop)
        load.await_more(dict.fromkeys(load.confirmed, 0))
        if how == "burnt":
            old.kill()
            shutil.rmtree(tmp_path / "old")
        command = [sys.executable, "-m", "penstock", "restore", "--from", url, "--data", str(tmp_path / "new"), "--take-over"]
        subprocess.run(command, check=True, timeout=60, capture_output=True)
        if how == "cut off":
            until(lambda: not old.running, "the former broker has stopped")
            assert "was taken over" in old.log()
            assert "the broker stops" in old.log()
        before = load.counts()
        with start(tmp_path / "new", url, old) as new:
            assert new.amqp_url == old.amqp_url
            load.await_more(before)
            load.stop()
            sends = {name: texts for name, texts in load.confirmed.items() if "receives" not in name}
            with Client(new.url) as client:
                states = ["available", "acquired", "archived"]
                counts = Counter(row["messageId"] for row in browse(client, "q", "messageId", states=states))
            for name, texts in sends.items():
                assert texts - set(counts) == set(), name  # nothing that was confirmed is lost
            assert set(counts.values()) == {1}  # nor doubled
