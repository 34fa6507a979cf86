"""TLS as bytes in, bytes out (W2): certificates, invalid input, and its memory."""

from __future__ import annotations

import datetime
import json
import ssl
import subprocess
import sys
from pathlib import Path

import pytest

from penstock.broker_core.amqp_plane.layers import LayerError, stack
from penstock.broker_core.amqp_plane.layers.tls import TlsLayer
from penstock.broker_core.amqp_plane.layers.websocket import WebSocketLayer

from .talk import CLIENTS, STRANGERS, Cut, Inside, TlsClient, WebSocketClient, every_cut, exchange, server_context

CONTEXT = server_context()


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
@every_cut
def test_a_client_s_certificate_is_known_after_the_handshake(version: ssl.TLSVersion, cut: Cut) -> None:
    """W2: EXTERNAL takes its name from here."""
    client = TlsClient(CLIENTS.issue_cert("orders", common_name="orders"))
    layer = stack(server_context(clients=True, version=version), websocket=False)
    assert layer.peer_certificate is None
    exchange(client, layer, cut)
    certificate = layer.peer_certificate
    assert certificate is not None
    assert ((("commonName", "orders"),)) in certificate["subject"]


def test_without_a_certificate_there_is_none() -> None:
    for client, layer in (
        (TlsClient(), TlsLayer(server_context(clients=True))),
        (TlsClient(CLIENTS.issue_cert("orders")), TlsLayer(CONTEXT)),  # not asked for
    ):
        exchange(client, layer)
        assert layer.ready
        assert layer.peer_certificate is None
    assert WebSocketLayer().peer_certificate is None


def test_below_websocket_the_certificate_is_the_same() -> None:
    client = Inside(TlsClient(CLIENTS.issue_cert("orders", common_name="orders")), WebSocketClient())
    layer = stack(server_context(clients=True), websocket=True)
    exchange(client, layer)
    assert layer.peer_certificate


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_certificate_that_is_expired_or_a_stranger_s_is_refused_with_the_reason(version: ssl.TLSVersion) -> None:
    """W2: the peer gets an alert."""
    long_ago = datetime.datetime(2020, 1, 1, tzinfo=datetime.timezone.utc)
    expired = CLIENTS.issue_cert("orders", not_before=long_ago, not_after=long_ago + datetime.timedelta(days=1))
    for certificate, reason in ((expired, "expired"), (STRANGERS.issue_cert("orders"), "unable to get local issuer")):
        client = TlsClient(certificate)
        layer = TlsLayer(server_context(clients=True, version=version))
        with pytest.raises(LayerError, match=f"the client's certificate is refused: .*{reason}"):
            exchange(client, layer)
        assert not layer.ready
        assert layer.peer_certificate is None
        with pytest.raises(ssl.SSLError, match=r"(?i)alert"):
            client.hear(layer.data_to_send())


def test_amqp_or_http_without_tls_is_named() -> None:
    for data, reason in ((b"AMQP\0\1\0\0", "wrong version number"), (b"GET / HTTP/1.1\r\n\r\n", "http request")):
        layer = TlsLayer(CONTEXT)
        with pytest.raises(LayerError, match=f"TLS: {reason}"):
            layer.receive(data)


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="memory is read from /proc")
def test_an_idle_connection_keeps_little() -> None:
    """Issue 4: a connection with TLS and SASL may use 100 KiB. This is the part of TLS, fresh and after a MiB each way."""
    done = subprocess.run(
        [sys.executable, str(Path(__file__).parent / "tls_memory.py")], capture_output=True, text=True, timeout=120, check=True
    )
    fresh, used = json.loads(done.stdout)
    assert fresh < 30 * 1024
    assert used < 60 * 1024
