"""A data directory that was copied or restored: a checkpoint continues only if its batch has the messages that were read."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.client.flight import Client
from penstock.connector.stream.reader import StreamReader

from .helpers import INITIAL, LIMIT, Queue, read_all

Offset = dict[str, Any]


class Sites:
    """A broker, and one on a copy of its directory, both with the batch that `first` names, which is read and not finished."""

    def __init__(self, folder: Path, stack: ExitStack, queues: str = "q") -> None:
        self._folder, self._stack = folder, stack
        with Broker(folder / "original") as broker, Client(broker.url) as client:
            for name in queues.split(","):
                made = Queue(broker, client, name)
                made.send(10)
            reader = made.reader(lease="me", queue=queues, maxMessagesPerTrigger="2")
            self.first = reader.latestOffset(INITIAL, LIMIT)
            read_all(reader, INITIAL, self.first)
            reader.stop()
        self.queues = queues
        shutil.copytree(folder / "original", folder / "copy")
        self.brokers = {name: stack.enter_context(Broker(folder / name)) for name in ("original", "copy")}

    def reader(self, site: str, **options: str) -> StreamReader:
        client = self._stack.enter_context(Client(self.brokers[site].url))
        queue = Queue.__new__(Queue)
        queue.broker, queue.client, queue.name, queue.readers = self.brokers[site], client, self.queues, []
        reader = queue.reader(lease="me", **options)
        self._stack.callback(reader.stop)
        return reader

    def epochs(self, site: str) -> dict[str, int]:
        with Client(self.brokers[site].url) as client:
            return {lease["lease"]: lease["epoch"] for lease in client.call("lease.list")["leases"]}


@pytest.fixture
def stack() -> Iterator[ExitStack]:
    with ExitStack() as made:
        yield made


CALLS: list[Callable[[StreamReader, Offset, Offset], Any]] = [
    lambda reader, start, end: reader.latestOffset(end, LIMIT),
    lambda reader, start, end: reader.partitions(start, end),
    lambda reader, start, end: reader.commit(end),
]


@pytest.mark.parametrize("queues", ["q", "q,r"])
def test_who_has_gone_on_with_one_is_refused_by_the_other(tmp_path: Path, stack: ExitStack, queues: str) -> None:
    sites = Sites(tmp_path, stack, queues)
    ends: dict[str, Offset] = {}
    for site, most in (("original", "2"), ("copy", "3")):
        reader = sites.reader(site, maxMessagesPerTrigger=most)
        ends[site] = reader.latestOffset(sites.first, LIMIT)  # each continues from the common batch
        read_all(reader, sites.first, ends[site])
    assert ends["original"]["signs"] != ends["copy"]["signs"]
    epochs = {site: sites.epochs(site) for site in ends}
    for site, origin in (("copy", "original"), ("original", "copy")):
        for call in CALLS:
            with pytest.raises(errors.WrongOffset, match=r"copied or restored.*directory that it read last.*new checkpoint"):
                call(sites.reader(site, failOnDataLoss="false"), sites.first, ends[origin])
        again = sites.reader(site)
        assert json.dumps(again.latestOffset(sites.first, LIMIT)) == json.dumps(ends[site])  # unfinished: the same, to the letter
    if queues == "q":  # a refused query has taken up no lease: the query that reads there continues
        assert {site: sites.epochs(site) for site in ends} == {site: {"me": epoch["me"] + 1} for site, epoch in epochs.items()}


def test_signs_survive_restarts(tmp_path: Path, stack: ExitStack) -> None:
    sites = Sites(tmp_path, stack)
    reader = sites.reader("original", maxMessagesPerTrigger="2")
    second = reader.latestOffset(sites.first, LIMIT)
    broker = sites.brokers["original"]
    broker.stop()  # the following calls find it in a snapshot
    broker.start()
    assert json.dumps(sites.reader("original").latestOffset(sites.first, LIMIT)) == json.dumps(second)
    broker.kill()
    broker.start()
    assert json.dumps(sites.reader("original").latestOffset(sites.first, LIMIT)) == json.dumps(second)
