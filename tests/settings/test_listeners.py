"""Listeners: offered mechanisms, and refusals (W2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.errors import InvalidRequest
from penstock.broker_core.settings.keys import load
from penstock.broker_core.settings.listeners import Listener, parse, to_json

TLS = {"tls_cert_file": "c", "tls_key_file": "k"}
CA = {**TLS, "tls_client_ca_file": "a"}
LOOPBACK = ["127.0.0.1", "127.9.9.9", "::1", "[::1]", "localhost", "LOCALHOST"]
PUBLIC = ["0.0.0.0", "::", "10.0.0.1", "broker.example", "localhost.example", "127.0.0.1.example"]


def only(flags: dict[str, Any], **table: Any) -> Listener:
    """The one listener that comes of this table."""
    (listener,) = load(None, {"data": "d", "listeners": [{"port": 0, **table}], **flags}).amqp_listeners
    return listener


@pytest.mark.parametrize("host", LOOPBACK)
def test_on_loopback_everybody_is_let_in(host: str) -> None:
    """W2: no other machine can read loopback traffic."""
    listener = only({}, host=host)
    assert listener.mechanisms == ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS")
    assert listener.without_sasl is True


@pytest.mark.parametrize("host", PUBLIC)
def test_on_a_network_nobody_is_nameless_and_no_password_in_clear(host: str) -> None:
    """W2: ANONYMOUS and a missing SASL layer off loopback are asked for in words; PLAIN is not to be had."""
    listener = only({}, host=host)
    assert listener.mechanisms == ("SCRAM-SHA-256",)
    assert listener.without_sasl is False
    with pytest.raises(InvalidRequest, match=r"listeners\[0\].mechanisms PLAIN would show passwords"):
        only({}, host=host, mechanisms=["PLAIN"])
    with pytest.raises(InvalidRequest, match=r"listeners\[0\].mechanisms PLAIN"):
        only({}, host=host, websocket=True, mechanisms=["PLAIN"])
    assert only({}, host=host, mechanisms=["ANONYMOUS"]).without_sasl is False
    assert only({}, host=host, mechanisms=["ANONYMOUS"], without_sasl=True).without_sasl is True


@pytest.mark.parametrize("host", PUBLIC)
def test_allow_anonymous_lets_nameless_peers_in_from_a_network(host: str) -> None:
    """W2: the setting of the broker applies to every listener except a WebSocket, which any web page can open."""
    anybody = {"allow_anonymous": True}
    listener = only(anybody, host=host)
    assert (listener.mechanisms, listener.without_sasl) == (("SCRAM-SHA-256", "ANONYMOUS"), True)
    assert only(anybody, host=host, mechanisms=["SCRAM-SHA-256"]).without_sasl is False
    assert only(anybody, host=host, websocket=True).mechanisms == ("SCRAM-SHA-256",)


def test_a_web_page_on_this_machine_is_not_let_in() -> None:
    """W2: a browser lets any page open a WebSocket to loopback."""
    listener = only({}, websocket=True)
    assert (listener.mechanisms, listener.without_sasl) == (("SCRAM-SHA-256", "PLAIN"), False)
    assert only({}, websocket=True, mechanisms=["ANONYMOUS"]).without_sasl is False
    assert only({}, websocket=True, mechanisms=["ANONYMOUS"], without_sasl=True).without_sasl is True


def test_with_tls_come_passwords_and_with_a_client_ca_certificates() -> None:
    assert only(TLS, host="0.0.0.0", tls=True).mechanisms == ("SCRAM-SHA-256", "PLAIN")
    assert only(CA, host="0.0.0.0", tls=True).mechanisms == ("EXTERNAL", "SCRAM-SHA-256", "PLAIN")
    assert only(CA, tls=True).mechanisms == ("EXTERNAL", "SCRAM-SHA-256", "PLAIN", "ANONYMOUS")
    assert only(CA).mechanisms == ("SCRAM-SHA-256", "PLAIN", "ANONYMOUS")  # no TLS, no certificate
    assert only(CA, tls=True, mechanisms=["PLAIN", "EXTERNAL"]).mechanisms == ("EXTERNAL", "PLAIN")  # the strongest first


def test_without_a_sasl_layer_only_where_anonymous_is() -> None:
    assert only({}, mechanisms=["PLAIN"]).without_sasl is False
    with pytest.raises(InvalidRequest, match=r"listeners\[0\].without_sasl .* ANONYMOUS"):
        only({}, mechanisms=["PLAIN"], without_sasl=True)
    with pytest.raises(InvalidRequest, match=r"listeners\[0\].without_sasl"):
        only({}, host="0.0.0.0", without_sasl=True)


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        ({}, r"listeners[1].port is missing"),
        ({"port": 70_000}, "listeners[1].port cannot be 70000; it must be a port number"),
        ({"port": True}, "listeners[1].port cannot be True"),
        ({"port": 0, "host": ""}, "listeners[1].host cannot be ''; it must be a host name"),
        ({"port": 0, "tls": "yes"}, "listeners[1].tls cannot be 'yes'; it must be true or false"),
        ({"port": 0, "tls": None}, "listeners[1].tls cannot be None"),
        ({"port": 0, "websocket": 1}, "listeners[1].websocket cannot be 1"),
        ({"port": 0, "without_sasl": "no"}, "listeners[1].without_sasl cannot be 'no'"),
        ({"port": 0, "mechanisms": "PLAIN"}, "listeners[1].mechanisms cannot be 'PLAIN'; it must be a list of some of EXTERNAL"),
        ({"port": 0, "mechanisms": ["DIGEST-MD5"]}, "listeners[1].mechanisms cannot be ['DIGEST-MD5']"),
        ({"port": 0, "tsl": True}, "listeners[1]: tsl is not a key; allowed are host, port, tls"),
        ({"port": 0, "tls": True}, "listeners[1].tls needs a certificate: set tls_cert_file and tls_key_file"),
        ({"port": 0, "mechanisms": ["EXTERNAL"]}, "listeners[1].mechanisms EXTERNAL is a login by a client's certificate"),
        ({"port": 0, "proxies": "10.0.0.1"}, "listeners[1].proxies cannot be '10.0.0.1'; it must be a list of addresses"),
        ({"port": 0, "proxies": ["a.example"]}, "listeners[1].proxies cannot be ['a.example']"),
        ({"port": 0, "proxies": ["10.0.0.1/8"]}, "listeners[1].proxies cannot be ['10.0.0.1/8']"),
        ({"port": 0, "proxies": ["::1"], "mechanisms": ["PLAIN"]}, "mechanisms PLAIN would show passwords to the network"),
        ({"port": 9}, "listeners[1].port 127.0.0.1:9 is the address of another listener"),
    ],
)
def test_a_wrong_listener_is_refused_with_its_place_and_field(table: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        load(None, {"data": "d", "listeners": [{"port": 9}, table]})
    assert reason in str(refused.value)


def test_external_needs_a_client_ca() -> None:
    with pytest.raises(InvalidRequest, match="EXTERNAL"):
        only(TLS, tls=True, mechanisms=["EXTERNAL"])


def test_a_wrong_listener_in_a_file_is_refused_with_the_file(tmp_path: Path) -> None:
    path = tmp_path / "penstock.toml"
    path.write_text("[[listeners]]\nport = 0\ntls = 5\n")
    with pytest.raises(InvalidRequest, match=rf"{path}: listeners\[0\].tls cannot be 5"):
        load(path, {"data": "d"})


def test_without_listeners_there_is_one_without_tls() -> None:
    """Also with a certificate: amqps is asked for, it does not take the place of amqp."""
    (listener,) = load(None, {"data": "d", **TLS}).amqp_listeners
    assert (listener.scheme, listener.host, listener.port) == ("amqp", "127.0.0.1", 5672)
    (listener,) = load(None, {"data": "d", "host": "0.0.0.0", "amqp_port": "7"}).amqp_listeners
    assert (listener.host, listener.port, listener.mechanisms) == ("0.0.0.0", 7, ("SCRAM-SHA-256",))


def test_amqp_can_be_turned_off() -> None:
    assert load(None, {"data": "d", "amqp_port": "off"}).amqp_listeners == ()
    assert load(None, {"data": "d", "amqp_port": "off", "listeners": [{"port": 0}]}).amqp_listeners == ()


def test_a_port_beside_listeners_is_refused_not_overlooked() -> None:
    with pytest.raises(InvalidRequest, match=r"amqp_port \(7\) is for a broker without listeners"):
        load(None, {"data": "d", "amqp_port": 7, "listeners": [{"port": 0}]})


def test_listeners_as_json_are_the_same() -> None:
    listeners = parse(
        [{"port": 5671, "tls": True, "host": "::1"}, {"port": 0, "mechanisms": ["ANONYMOUS"], "without_sasl": True}]
    )
    assert parse(to_json(listeners)) == listeners
    assert listeners[0].scheme == "amqps"
    assert Listener(websocket=True, tls=True).scheme == "wss"


def test_clients_of_a_proxy_on_this_machine_may_be_on_any_machine() -> None:
    """W2: so the mechanisms are those of a network."""
    listener = only({}, proxies=["127.0.0.1", "10.0.0.0/8", "::1"])
    assert listener.proxies == ("127.0.0.1/32", "10.0.0.0/8", "::1/128")
    assert (listener.mechanisms, listener.without_sasl) == (("SCRAM-SHA-256",), False)
    assert load(None, {"data": "d", "listeners": to_json([listener])}).listeners == (listener,)
