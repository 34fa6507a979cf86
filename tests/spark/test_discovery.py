"""Spark with only the broker's AMQP address: the Flight endpoint is discovered, also with users and TLS (W2, W3)."""

from __future__ import annotations

import socket
import subprocess
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from penstock import Broker
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.client.flight import Client
from penstock.broker_core.security import users_file
from penstock.broker_core.security.rights import Right
from penstock.broker_core.security.users import User, credentials_of

PASSWORD = "correct horse battery"


def certificate(folder: Path) -> tuple[str, str]:
    """Create a self-signed certificate for the broker."""
    cert, key = str(folder / "cert.pem"), str(folder / "key.pem")
    made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "1"]
    made += ["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", key, "-out", cert]
    subprocess.run(made, check=True, capture_output=True, timeout=60)
    return cert, key


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def secured(folder: Path, *rights: Right) -> tuple[Broker, dict[str, str], Client]:
    """Start a broker with TLS on both planes and one user; yield it, Spark's options and an administrator's connection."""
    cert, key = certificate(folder)
    users = folder / "users.json"
    spark_user, root = (User(credentials_of(word, bytes(16), 4096)) for word in (PASSWORD, "root"))
    users_file.edit(users, lambda known: known.add("spark", spark_user).permit("spark", "orders", rights))
    users_file.edit(users, lambda known: known.add("root", root).permit("root", "*", list(Right)))
    broker = Broker(
        folder / "broker",
        users_file=users,
        tls_cert_file=cert,
        tls_key_file=key,
        flight_tls=True,
        listeners=[{"port": free_port(), "tls": True}],  # the same after a restart
    ).start()
    options = {"url": broker.amqp_url, "queue": "orders", "userName": "spark", "password": PASSWORD, "caFile": cert}
    admin = Client(broker.flight_url, Credentials.from_files("root", "root", cert))
    admin.call("queue.declare", queue="orders")
    return broker, options, admin


def write(spark: SparkSession, options: dict[str, str], first: int, last: int) -> None:
    frame = spark.range(first, last, 1, 2).selectExpr("cast(id as string) body")
    frame.write.format("amqp").options(**options).mode("append").save()


def numbers(rows: list[Any]) -> list[int]:
    return sorted(int(row.body) for row in rows)


def test_an_amqp_address_is_enough(spark: SparkSession, broker: Broker, tmp_path: Path) -> None:
    broker.declare("orders")
    options = {"url": broker.amqp_url, "queue": "orders"}
    write(spark, options, 0, 100)
    assert spark.read.format("amqp").options(**options).load().count() == 100
    stream = spark.readStream.format("amqp").options(**options).load().selectExpr("cast(body as string) body")
    writer = stream.writeStream.format("json").option("checkpointLocation", str(tmp_path / "c"))
    writer.trigger(availableNow=True).start(str(tmp_path / "t")).awaitTermination()
    assert numbers(spark.read.json(str(tmp_path / "t")).collect()) == list(range(100))


def test_a_query_with_a_user_over_tls_outlives_its_token_and_tells_no_secret(spark: SparkSession, tmp_path: Path) -> None:
    broker, options, _ = secured(tmp_path, Right.SEND, Right.RECEIVE, Right.BROWSE)
    with broker:
        write(spark, options, 0, 50)
        source = spark.readStream.format("amqp").options(**options).load().selectExpr("cast(body as string) body")
        writer = source.writeStream.format("json").option("checkpointLocation", str(tmp_path / "c"))
        query = writer.trigger(processingTime="0 seconds").start(str(tmp_path / "t"))
        query.processAllAvailable()
        broker.kill()  # its tokens are lost
        broker.start()
        write(spark, options, 50, 100)
        query.processAllAvailable()
        shown = [str(query.lastProgress), str(query.status), query._jsq.explainInternal(True)]
        query.stop()
        assert numbers(spark.read.json(str(tmp_path / "t")).collect()) == list(range(100))
        shown.append(spark.read.format("amqp").options(**options).load()._jdf.queryExecution().toString())
        files = [path.read_text() for path in (tmp_path / "c").rglob("*") if path.is_file() and path.suffix != ".crc"]
        assert any('"lease"' in text for text in files)
        assert not [text for text in [*shown, *files] if PASSWORD in text]


def test_what_the_user_may_not_do_is_refused_by_name(spark: SparkSession, tmp_path: Path) -> None:
    broker, options, _ = secured(tmp_path, Right.BROWSE)
    with broker:
        assert spark.read.format("amqp").options(**options).load().count() == 0
        with pytest.raises(PySparkException, match="'spark' may not"):
            write(spark, options, 0, 1)
        for wrong in ({"password": "wrong"}, {"userName": "nobody"}):
            with pytest.raises(PySparkException, match="password or the certificate is wrong") as refusal:
                spark.read.format("amqp").options(**{**options, **wrong}).load().count()
            assert PASSWORD not in str(refusal.value)
