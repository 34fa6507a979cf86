"""W2, W3: every client logs in over TLS with a password, by SCRAM or by certificate. A refused client gets a reason, and harms no
other.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import quote

import pytest
import trustme
from cryptography.hazmat.primitives import serialization

from penstock import Broker
from penstock.broker_core.client.flight import Client

from .asking import faults
from .conftest import Start, command_or_skip, urls_of
from .driving import Refused
from .test_each import NAMES, bodies, text

QUEUES = 60  # each test takes one
PASSWORD = "correct horse"
CONFIG = """
tls_cert_file = "broker.pem"
tls_key_file = "broker.key"
tls_client_ca_file = "clients.pem"

[[listeners]]
port = 0

[[listeners]]
port = 0
tls = true

[[listeners]]
port = 0
websocket = true

[[listeners]]
port = 0
tls = true
websocket = true
"""


@dataclass
class Site:
    """A broker with users, and their files: `urls` by scheme, the authority's certificate, their own certificates."""

    folder: Path
    broker: Broker
    urls: dict[str, str]
    numbers: Iterator[int] = field(default_factory=itertools.count)

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def login(self, **more: str) -> dict[str, str]:
        return {"ca": self.file("ca.pem"), "user": "alice", "password": PASSWORD, **more}


def penstock(*arguments: str, stdin: str = "") -> None:
    subprocess.run([sys.executable, "-m", "penstock", *arguments], input=stdin, text=True, check=True, capture_output=True)


def write_pair(folder: Path, name: str, certificate: trustme.LeafCert) -> None:
    (folder / f"{name}.pem").write_bytes(b"".join(part.bytes() for part in certificate.cert_chain_pems))
    key = serialization.load_pem_private_key(certificate.private_key_pem.bytes(), None)
    form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(key.private_bytes(*form))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    folder = tmp_path_factory.mktemp("site")
    ours, clients, strangers = trustme.CA(), trustme.CA(organization_name="clients"), trustme.CA()
    ours.cert_pem.write_to_path(str(folder / "ca.pem"))
    clients.cert_pem.write_to_path(str(folder / "clients.pem"))
    strangers.cert_pem.write_to_path(str(folder / "strangers.pem"))
    write_pair(folder, "broker", ours.issue_cert("localhost", "127.0.0.1"))
    write_pair(folder, "dora", clients.issue_cert("dora@example.org", common_name="dora"))
    (folder / "broker.toml").write_text(CONFIG)
    data = str(folder / "data")
    with Broker(data, fsync="never") as broker, Client(broker.flight_url) as flight:
        for name in ("closed", *(f"open-{number}" for number in range(QUEUES))):
            flight.call("queue.declare", queue=name)
    penstock("user", "add", "alice", "--data", data, "--password-file", "-", stdin=PASSWORD + "\n")
    penstock("user", "add", "dora", "--data", data, "--no-password", "--certificate", "dora")
    for user in ("alice", "dora"):
        penstock("permit", user, "open-*", "send,receive", "--data", data)
    with Broker(data, config=folder / "broker.toml", fsync="never") as broker:
        urls = {url.partition(":")[0]: url.replace("127.0.0.1", "localhost") for url in urls_of(broker)}
        yield Site(folder, broker, urls)


@pytest.fixture
def queue(site: Site) -> str:
    return f"open-{next(site.numbers)}"


@pytest.mark.parametrize("name", NAMES)
def test_a_password_over_tls(name: str, site: Site, start: Start, queue: str) -> None:
    client = start(name, site.urls["amqps"], **site.login())
    client.send(queue, text(name))
    assert bodies(client.receive(queue, 1)) == [name]


@pytest.mark.parametrize("name", NAMES)
def test_a_client_s_certificate(name: str, site: Site, start: Start, queue: str) -> None:
    more = {"cert": site.file("dora.pem"), "key": site.file("dora.key"), "mechanism": "EXTERNAL"}
    client = start(name, site.urls["amqps"], ca=site.file("ca.pem"), **more)
    client.send(queue, text(name))
    assert bodies(client.receive(queue, 1)) == [name]


def test_vertx_over_tls(site: Site, queue: str) -> None:
    port = site.urls["amqps"].rpartition(":")[2]
    url = f"amqps://alice:{quote(PASSWORD)}@localhost:{port}{site.file('ca.pem')}"
    assert faults(command_or_skip("vertx"), url, "order_is_kept", queue) == {"order_is_kept": None}


def test_fe2o3_amqp_with_a_password(site: Site, start: Start, queue: str) -> None:
    """Without TLS, to compile it sooner."""
    client = start("fe2o3_amqp", site.urls["amqp"], **site.login())
    client.send(queue, text("a"))
    assert bodies(client.receive(queue, 1)) == ["a"]
    with pytest.raises(Refused) as refused:
        client.send("closed", text("x"))
    assert refused.value.condition == "amqp:unauthorized-access"
    with pytest.raises(Refused):
        start("fe2o3_amqp", site.urls["amqp"], **site.login(password="wrong"))


def test_scram(site: Site, start: Start, queue: str) -> None:
    """Only qpid-jms of these clients supports it."""
    login = {"user": "alice", "password": PASSWORD, "mechanism": "SCRAM-SHA-256"}
    for url in (site.urls["amqp"], site.urls["amqps"]):
        client = start("qpid_jms", url, ca=site.file("ca.pem"), **login)
        client.send(queue, text("scram"))
        assert bodies(client.receive(queue, 1)) == ["scram"]
        client.do("close")
    with pytest.raises(Refused):
        start("qpid_jms", site.urls["amqp"], **{**login, "password": "wrong"})


@pytest.mark.parametrize("scheme", ["ws", "wss"])
@pytest.mark.parametrize("name", ["rhea", "qpid_jms"])
def test_web_socket(name: str, scheme: str, site: Site, start: Start, queue: str) -> None:
    url = site.urls[scheme] if name == "rhea" else "amqp" + site.urls[scheme]
    client = start(name, url, **site.login())
    large = "x" * 300_000  # more than one frame, and more than one web socket frame
    client.send(queue, text(name), text(large))
    assert bodies(client.receive(queue, 2)) == [name, large]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("login", [{"password": "wrong"}, {"user": "nobody"}])
def test_a_wrong_login_is_refused_and_harms_nobody(
    name: str, login: dict[str, str], site: Site, start: Start, queue: str
) -> None:
    with pytest.raises(Refused) as refused:
        start(name, site.urls["amqps"], **site.login(**login))
    assert refused.value.level in ("connection", "client")  # a Go error of the login does not have its own type
    start(name, site.urls["amqps"], **site.login())
    assert PASSWORD not in site.broker.log()


@pytest.mark.parametrize("name", NAMES)
def test_a_broker_of_another_authority_is_not_trusted(name: str, site: Site, start: Start, queue: str) -> None:
    with pytest.raises(Refused):
        start(name, site.urls["amqps"], **site.login(ca=site.file("strangers.pem")))


@pytest.mark.parametrize("name", NAMES)
def test_without_the_right_the_link_is_refused_and_the_connection_lives_on(
    name: str, site: Site, start: Start, queue: str
) -> None:
    client = start(name, site.urls["amqps"], **site.login())
    with pytest.raises(Refused) as refused:
        client.send("closed", text("x"))
    assert refused.value.condition == "amqp:unauthorized-access"
    client.send(queue, text(name))
    assert bodies(client.receive(queue, 1)) == [name]
