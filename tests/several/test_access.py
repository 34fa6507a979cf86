"""Users and TLS at several brokers: one CA, one user and one password for all, from the connector and from the command line."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.types import BinaryType, StructField, StructType

from penstock import Broker
from penstock.broker_core import errors
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.client.flight import Client
from penstock.connector.brokers.publishing import Publishing
from penstock.connector.brokers.spread import Spread
from penstock.connector.options import Options
from penstock.connector.sink.writer import BatchWriter, StageReport
from penstock.connector.stream.lease import lease_states
from penstock.connector.stream.reader import StreamReader

from ..amqp_client.certificates import Authority
from ..amqp_client.test_discovery import add_user
from .helpers import INITIAL, LIMIT, SCHEMA
from .test_cli import penstock

SENT = StructType([StructField("body", BinaryType())])
ONE = pa.record_batch({"body": pa.array([b"one"], pa.binary())})


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """Two brokers with TLS on both planes and the same users. Their urls, the CA, and a folder with the password."""
    folder = tmp_path_factory.mktemp("secured")
    authority = Authority(folder)
    own = authority.issue("localhost")
    with ExitStack() as stack:
        brokers = []
        for name in "ab":
            (folder / name).mkdir()
            add_user(folder / name / "users.json", "ann", "pencil")
            add_user(folder / name / "users.json", "eve", "pencil")
            settings = {"users_file": folder / name / "users.json", "tls_cert_file": own.cert, "tls_key_file": own.key}
            listeners = [{"port": 0, "tls": True}]
            broker = Broker(folder / name / "data", fsync="never", flight_tls=True, listeners=listeners, **settings)
            brokers.append(stack.enter_context(broker))
        (folder / "password").write_text("pencil\n")
        yield {"url": ",".join(str(broker.amqp_url) for broker in brokers), "caFile": authority.ca_file, "folder": folder}


def test_leases_of_a_user_stand_by_the_names_that_the_user_gives(secured: dict[str, Any]) -> None:
    url = secured["url"].partition(",")[0]
    with Client(url, Credentials.from_files("ann", "pencil", secured["caFile"])) as client:
        client.call("queue.declare", queue="one")
        client.put({"op": "enqueue", "queue": "one"}, ONE.schema, [ONE])
        client.call("lease.advance", queue="one", lease="mine", run="r", epoch=None, finished=0, fresh=True)
        assert lease_states(client)["mine"][:2] == (True, True)
        client.call("lease.plan", queue="one", lease="mine", run="r", epoch=1, after=0, batch=1)
        assert lease_states(client)["mine"][:2] == (True, False)
        client.call("queue.delete", queue="one", force=True)


def command(secured: dict[str, Any], *arguments: str, user: str = "ann") -> Any:
    login = ["--user", user, "--password-file", str(secured["folder"] / "password"), "--ca-file", secured["caFile"]]
    return penstock(*arguments, "--url", secured["url"], *login)


def test_one_user_and_one_ca_hold_for_all(secured: dict[str, Any]) -> None:
    for url in secured["url"].split(","):
        with Client(url, Credentials.from_files("ann", "pencil", secured["caFile"])) as client:
            client.call("queue.declare", queue="orders")
    options = {"url": secured["url"], "caFile": secured["caFile"], "userName": "ann", "password": "pencil", "queue": "orders"}

    writer = BatchWriter(Options(options), SENT, False)
    batch = pa.record_batch({"body": pa.array([b"%d" % i for i in range(40)], pa.binary())})
    tasks = []
    for _ in range(2):
        made = writer.write(iter([batch]))
        assert isinstance(made, StageReport)
        tasks.append(made)
    writer.commit(list(tasks))

    listed = json.loads(command(secured, "queue", "stat", "orders", "--json").stdout)
    assert (listed["available"], listed["brokers"]) == (80, secured["url"].split(","))
    refused = command(secured, "queue", "stat", "orders", user="bob")
    assert (refused.returncode, "pencil" in refused.stderr) == (1, False)

    reader = StreamReader(Options(options), SCHEMA)
    end = reader.latestOffset(INITIAL, LIMIT)
    bodies = [body for part in reader.partitions(INITIAL, end) for rows in reader.read(part) for body in rows["body"].to_pylist()]
    assert sorted(map(int, bodies)) == sorted([*range(40)] * 2)
    reader.stop()


def test_what_another_user_has_half_published_is_not_said_to_be_gone(
    secured: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also if it might continue without missing stages: they exist."""
    for url in secured["url"].split(","):
        with Client(url, Credentials.from_files("ann", "pencil", secured["caFile"])) as client:
            client.call("queue.declare", queue="halves")
    options = {"url": secured["url"], "caFile": secured["caFile"], "password": "pencil", "queue": "halves"}
    options |= {"txnAppId": "halves", "txnVersion": "1", "failOnDataLoss": "false"}

    def write(user: str) -> None:
        writer = BatchWriter(Options({**options, "userName": user}), SENT, False)
        tasks = []
        for task in range(2):  # one for each broker
            monkeypatch.setattr(Spread, "home", lambda spread, *_, task=task: spread.ids[task])
            tasks.append(writer.write(iter([ONE])))
        writer.commit(tasks)

    with monkeypatch.context() as patch:
        patch.setattr(Publishing, "_publish_all", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            write("ann")
    with pytest.raises(errors.InvalidOption, match="begun by user 'ann': write it again by the same user"):
        write("eve")
    write("ann")
    assert json.loads(command(secured, "queue", "stat", "halves", "--json").stdout)["available"] == 2


def test_a_password_that_is_wrong_at_all_is_refused_without_telling_it(secured: dict[str, Any]) -> None:
    options = {"url": secured["url"], "caFile": secured["caFile"], "userName": "ann", "password": "hush", "queue": "orders"}
    with pytest.raises(errors.Unauthenticated) as refusal:
        StreamReader(Options(options), SCHEMA).latestOffset(INITIAL, LIMIT)
    assert "hush" not in str(refusal.value)
