"""A client of a wrong port gets the right one, and the broker logs it. An expired certificate is reported with its date."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
import trustme

import penstock
from penstock import Broker
from penstock.broker_core import errors, wrong_port
from penstock.broker_core.client.credentials import Credentials
from penstock.broker_core.client.flight import Client

from ..waiting import until
from .conftest import Run

CONFIG = """
tls_cert_file = "{cert}"
tls_key_file = "{key}"
flight_tls = true

[[listeners]]
port = 0
tls = true
"""


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    with Broker(tmp_path_factory.mktemp("plain") / "data") as running:
        yield running


def secured(folder: Path, **validity: datetime) -> tuple[Broker, str]:
    """A broker with TLS at both ports, and its CA's file."""
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", **validity)
    issued.private_key_and_cert_chain_pem.write_to_path(folder / "broker.pem")
    authority.cert_pem.write_to_path(folder / "ca.pem")
    (folder / "penstock.toml").write_text(CONFIG.format(cert=folder / "broker.pem", key=folder / "broker.pem"))
    return Broker(folder / "data", config=folder / "penstock.toml"), str(folder / "ca.pem")


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Broker, str]]:
    broker, ca = secured(tmp_path_factory.mktemp("secure"))
    with broker:
        yield broker, ca


def place(url: str) -> str:
    return url.partition("://")[2]


def test_the_environment_may_name_the_authority(
    penstock: Run, plain: Broker, secure: tuple[Broker, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """PENSTOCK_CA_FILE, as --ca-file. A broker without TLS does not need it."""
    broker, ca = secure
    assert "with a certificate that is trusted here" in penstock("queue", "list", url=broker.url).stderr
    for value, code in ((ca, 0), ("", 3), ("nowhere.pem", 2)):
        monkeypatch.setenv("PENSTOCK_CA_FILE", value)
        assert penstock("queue", "list", url=broker.url).returncode == code
    assert penstock("queue", "list", "--ca-file", ca, url=broker.url).returncode == 0
    assert penstock("queue", "list", url=plain.url).returncode == 0
    assert penstock("send", "q", url=plain.amqp_url).stderr.count("certificates") == 0


def port_of(url: str) -> str:
    return url.rpartition(":")[2]


def by_flight(url: str, ca: str | None = None) -> None:
    with Client(url, Credentials.from_files(None, None, ca, None, None)) as client:
        client.call("hello")


def by_amqp(url: str, ca: str | None = None) -> None:
    with penstock.connect(url, **({} if ca is None else {"ca_file": ca})):
        pass


def logged(broker: Broker, text: str) -> None:
    until(lambda: text in broker.log(), lambda: f"{text!r} is logged: {broker.log()[-2000:]}")


def test_grpc_at_the_amqp_port(plain: Broker) -> None:
    says = r"this is the AMQP port; use amqp:// or the Flight port \(8815 by default\)"
    with pytest.raises(errors.WrongPort, match=f"grpc://{place(plain.amqp_url)}: {says}"):
        by_flight(f"grpc://{place(plain.amqp_url)}")
    logged(plain, f"this is the AMQP port; use amqp:// or port {port_of(plain.flight_url)}")


@pytest.mark.parametrize("by", [by_amqp, by_flight])
def test_amqp_at_the_flight_port(plain: Broker, by: Callable[[str], None]) -> None:
    with pytest.raises(errors.WrongPort, match=r"this is the Flight port; use grpc:// or the AMQP port \(5672 by"):
        by(f"amqp://{place(plain.flight_url)}")
    logged(plain, f"this is the Flight port; use grpc:// or port {port_of(plain.amqp_url)}")


def test_grpc_at_the_http_port(plain: Broker) -> None:
    with pytest.raises(errors.WrongPort, match=r"this is an HTTP port; use the Flight port \(8815 by default\)"):
        by_flight(f"grpc://{place(plain.http_url)}")


def test_tls_where_there_is_none(plain: Broker) -> None:
    with pytest.raises(errors.WrongPort, match="this is the Flight port without TLS; use grpc://"):
        by_flight(f"grpc+tls://{place(plain.flight_url)}")
    with pytest.raises(errors.WrongPort, match="this is the AMQP port without TLS; use amqp://"):
        by_amqp(f"amqps://{place(plain.amqp_url)}")
    with pytest.raises(errors.WrongPort, match="this is the Flight port without TLS; use grpc://"):
        by_amqp(f"amqps://{place(plain.flight_url)}")
    logged(plain, "this is the Flight port without TLS; use grpc://")
    logged(plain, "this is the AMQP port without TLS; use amqp://")


def test_no_tls_where_there_is_some(secure: tuple[Broker, str]) -> None:
    broker, ca = secure
    by_flight(broker.flight_url, ca)
    by_amqp(broker.amqp_url, ca)
    with pytest.raises(errors.WrongPort, match=r"this port speaks TLS; use grpc\+tls://"):
        by_flight(f"grpc://{place(broker.flight_url)}")
    with pytest.raises(errors.WrongPort, match="this port speaks TLS; use amqps://"):
        by_amqp(f"amqp://{place(broker.amqp_url)}")
    with pytest.raises(errors.WrongPort, match=r"this is the Flight port; use grpc\+tls:// or the AMQP port \(5671 by"):
        by_amqp(f"amqps://{place(broker.flight_url)}", ca)
    logged(broker, "this port speaks TLS; use grpc+tls://")
    logged(broker, "this port speaks TLS; use amqps://")


def test_a_certificate_that_is_not_trusted_is_one_line(secure: tuple[Broker, str], penstock: Run) -> None:
    """Words of gRPC on stderr would stand before the JSON."""
    refused = penstock("--json", "queue", "list", url=secure[0].flight_url)
    assert refused.returncode == 3
    assert "with a certificate that is trusted here" in json.loads(refused.stderr)["error"]["message"]


def test_a_certificate_whose_time_is_over_says_when_it_ended(tmp_path: Path) -> None:
    ended = (datetime.now(timezone.utc) - timedelta(days=3)).replace(microsecond=0)
    broker, ca = secured(tmp_path, not_before=ended - timedelta(days=30), not_after=ended)
    with broker:
        says = f"not valid any more: it ended on {ended:%Y-%m-%d at %H:%M} UTC"
        with pytest.raises(errors.PeerError, match=says):
            by_flight(broker.flight_url, ca)
        with pytest.raises(errors.PeerError, match=says):
            by_amqp(broker.amqp_url, ca)


def test_nobody_there_is_still_nobody() -> None:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    with pytest.raises(errors.Unreachable, match=r"no broker answers at grpc://127\.0\.0\.1"):
        by_flight(f"grpc://127.0.0.1:{port}")


@pytest.mark.parametrize(
    ("octets", "protocol"),
    [
        (b"AMQP\x03\x01\x00\x00", wrong_port.AMQP),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", wrong_port.FLIGHT),
        (b"\x00\x00\x18\x04\x00\x00\x00\x00\x00\x00\x03", wrong_port.FLIGHT),
        (b"\x16\x03\x01\x02\x00\x01", wrong_port.TLS),
        (b"\x15\x03\x03\x00\x02\x02\x46", wrong_port.TLS),
        (b"HTTP/1.1 400 Bad Request", wrong_port.HTTP),
        (b"GET / HTTP/1.1\r\n", wrong_port.HTTP),
        (b"SSH-2.0-OpenSSH", None),
        (b"", None),
    ],
)
def test_a_protocol_by_its_first_octets(octets: bytes, protocol: str | None) -> None:
    assert wrong_port.spoken(octets) == protocol
