"""Claims-based security: a token before each link, a new one before it ends, and the broker's reason for a refusal."""

from __future__ import annotations

import base64
import dataclasses
import hashlib
import hmac
import time
from urllib.parse import parse_qs

import pytest

from penstock.broker_core import errors
from penstock.broker_core.amqp import Message
from penstock.broker_core.client import shared_access
from penstock.broker_core.client.amqp import Connection, claims, login
from penstock.broker_core.client.credentials import NOBODY, Credentials

from .claims_peer import KEY, ClaimsPeer

MESSAGE = Message(data=[b"hello"]).encode()


def opened(peer: ClaimsPeer, *, key: str = KEY, token_s: int = 3600) -> Connection:
    parsed = shared_access.parse(peer.connection_string.replace(KEY, key))
    access = dataclasses.replace(parsed.access, token_s=token_s)
    return login(parsed.url, Credentials(shared=access), timeout_s=10)


def test_each_address_gets_a_token_before_its_link() -> None:
    with ClaimsPeer() as peer, opened(peer) as connection:
        for queue in ("orders", "orders", "returns"):
            sender = connection.sender(queue)
            sender.send([MESSAGE])
            sender.flush()
        assert {address: len(tokens) for address, tokens in peer.tokens.items()} == {"orders": 1, "returns": 1}
        peer.queues["orders"].append(MESSAGE)
        assert len(connection.receiver("orders").receive(timeout_s=10)) == 1


def test_without_a_token_the_peer_refuses() -> None:
    with ClaimsPeer() as peer:
        plain = login(peer.url, NOBODY, timeout_s=10)
        with plain as connection, pytest.raises(errors.NotAllowed, match="no token for orders"):
            connection.sender("orders")


def test_a_wrong_key_is_told_with_the_peers_words_and_without_the_key() -> None:
    with ClaimsPeer() as peer, opened(peer, key="d3Jvbmc=") as connection:
        with pytest.raises(errors.Unauthenticated, match=r"'orders'.*InvalidSignature: no such key.*401") as refusal:
            connection.sender("orders")
        assert "d3Jvbmc" not in str(refusal.value)


def test_a_token_is_renewed_before_it_ends_in_the_midst_of_work(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(claims, "RENEW_AFTER", 0.3)  # so that a busy machine has two seconds for it
    with ClaimsPeer() as peer, opened(peer, token_s=3) as connection:
        sender = connection.sender("orders")
        began = time.monotonic()
        while time.monotonic() - began < 3.2:  # longer than the life of the first token
            sender.send([MESSAGE])
            sender.flush()
            connection.idle(0.05)
        assert peer.ended == []
        assert len(peer.tokens["orders"]) >= 2
        assert sender.accepted == sender.sent


def test_a_refused_renewal_fails_the_connection_with_the_peers_words() -> None:
    with ClaimsPeer(refuse_after=1) as peer, opened(peer, token_s=2) as connection:
        sender = connection.sender("orders")
        with pytest.raises(errors.Unauthenticated, match="InvalidSignature"):
            connection.idle(30)
        with pytest.raises(errors.Unauthenticated, match="InvalidSignature"):
            sender.send([MESSAGE])


def test_a_peer_that_ends_the_link_of_tokens_gets_them_by_another() -> None:
    with ClaimsPeer() as peer, opened(peer) as connection:
        connection.sender("orders")
        assert connection.claims is not None
        links = connection.claims._links
        assert links is not None
        for link in links:
            link.close()
        connection.sender("returns")
        assert set(peer.tokens) == {"orders", "returns"}


def test_a_broker_without_claims_is_told() -> None:
    from .peer import Peer

    with Peer() as peer:
        access = shared_access.SharedAccess("127.0.0.1", "tests", KEY)
        connection = login(peer.url, Credentials(shared=access), timeout_s=0.5)
        with connection, pytest.raises(errors.PeerError, match="does not answer a token for 'orders'"):
            connection.sender("orders")


@pytest.mark.parametrize(
    ("text", "url", "entity"),
    [
        ("Endpoint=sb://a.example/;SharedAccessKeyName=n;SharedAccessKey=kZkZ=", "amqps://a.example", None),
        ("endpoint=sb://a.example;SharedAccessKey=kZkZ;SharedAccessKeyName=n;EntityPath=q;", "amqps://a.example", "q"),
        ("Endpoint=sb://a:5673;SharedAccessKeyName=n;SharedAccessKey=kZkZ;UseDevelopmentEmulator=true", "amqp://a:5673", None),
    ],
)
def test_a_connection_string_is_read(text: str, url: str, entity: str | None) -> None:
    parsed = shared_access.parse(text)
    assert (parsed.url, parsed.entity, parsed.access.name) == (url, entity, "n")
    assert parsed.access.key.startswith("k")
    assert parsed.access.key not in repr(parsed).replace("token_s", "")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "no Endpoint"),
        ("Endpoint=sb://a/;SharedAccessKeyName=n", "no SharedAccessKey"),
        ("Endpoint=sb://a/;SharedAccessKey=hush", "no SharedAccessKeyName"),
        ("Endpoint=https://a/;SharedAccessKeyName=n;SharedAccessKey=hush", "must be sb://HOST/"),
        ("Endpoint=sb://a:b/;SharedAccessKeyName=n;SharedAccessKey=hush", "must be sb://HOST/"),
        ("hush", "without NAME=VALUE"),
        ("SharedAccessKey=hush;SharedAccessKey=hush", "one twice"),
        ("hush" * 2000, "more than"),
    ],
)
def test_a_connection_string_is_refused_without_its_secrets(text: str, says: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=says) as refusal:
        shared_access.parse(text)
    assert "hush" not in str(refusal.value)


def test_a_token_is_signed_as_service_bus_documents_it() -> None:
    """The sum over the quoted resource, a newline and the expiry, with the key as it is written."""
    token = shared_access.SharedAccess("ns.servicebus.windows.net", "Root", "c2VjcmV0").token("my queue", 1700000000)
    resource = "sb%3A%2F%2Fns.servicebus.windows.net%2Fmy+queue"
    fields = parse_qs(token.removeprefix("SharedAccessSignature "))
    assert token.startswith(f"SharedAccessSignature sr={resource}&sig=")
    assert (fields["se"], fields["skn"]) == (["1700000000"], ["Root"])
    digest = hmac.new(b"c2VjcmV0", f"{resource}\n1700000000".encode(), hashlib.sha256).digest()
    assert base64.b64decode(fields["sig"][0]) == digest
