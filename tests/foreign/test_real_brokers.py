"""Our AMQP client at brokers of others: the logins that they offer; and their ports."""

from __future__ import annotations

import socket
import sys

import pytest

from penstock.broker_core import errors
from penstock.broker_core.client.amqp import connect

from ..artemis import held_port
from ..brokers import PASSWORD, USER, RealBroker

BROKERS = ("artemis_broker", "rabbitmq", "qpid_broker_j")
#: The best that each offers for a password on loopback.
MECHANISM = {"artemis": "PLAIN", "rabbitmq": "PLAIN", "broker-j": "SCRAM-SHA-256"}


@pytest.fixture(params=BROKERS)
def broker(request: pytest.FixtureRequest) -> RealBroker:
    fixture = request.getfixturevalue(request.param)
    assert isinstance(fixture, RealBroker)
    return fixture


def test_a_user_is_let_in_and_nobody_else(broker: RealBroker) -> None:
    with connect(broker.url, USER, PASSWORD) as connection:
        sasl = connection._machine._handshake._sasl
        assert sasl is not None
        assert sasl.mechanism == MECHANISM[broker.name]
    with pytest.raises(errors.Unauthenticated) as refusal:
        connect(broker.url, USER, "hush")
    assert "hush" not in str(refusal.value)


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux lets a process listen at a port that another holds")
def test_the_port_of_a_broker_is_given_to_nobody_else_between_its_lives() -> None:
    class Owner:
        pass

    owner = Owner()
    port = held_port(owner)
    for _ in range(2):
        with socket.socket() as stranger, pytest.raises(OSError, match="in use"):
            stranger.bind(("127.0.0.1", port))
        socket.create_server(("127.0.0.1", port)).close()
    del owner
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", port))
