"""Addresses in the notations of other brokers: the plain one that errors give."""

from __future__ import annotations

import pytest

from penstock.broker_core import errors, notations
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.columns.limits import MAX_NAME
from penstock.broker_core.engine.decide.handlers import decide
from penstock.broker_core.engine.model.state import BrokerState

PLAIN = {
    "/queues/q": "q",
    "queues/q": "q",
    "/queues/my%20queue%2F1": "my queue/1",
    "/queue/q": "q",
    "/amq/queue/q": "q",
    "/exchanges/e": "e",
    "/exchanges/e/key.of.it": "e/key.of.it",
    "/exchange/e/key": "e/key",
    "/topic/a.b": "amq.topic/a.b",
    "queue://q": "q",
    "queue:///q": "q",
    "queue://q?consumer.prefetchSize=1": "q",
    "topic://news": "news",
    "temp-queue://x": "x",
    "amqp://localhost/q": "q",
    "amqps://user:secret@host:5671/q": "q",
    "amqp://host/queues/my%20q": "my q",
    "amqp://host/e/key": "e/key",
    "/q": "q",
}
OURS = ["q", "e/key", "e/", "a/b/c", "queue:q", "orders:eu", "amqp:", "amqp://host", "amqp://host/", "queue://", "/", "", "q?x"]
OURS += ["e//x", "topic/a.b", "exchanges/x"]


@pytest.mark.parametrize(("address", "plain"), PLAIN.items())
def test_the_plain_address(address: str, plain: str) -> None:
    assert notations.plain(address) == plain
    assert repr(plain) in str(notations.advice(address))


@pytest.mark.parametrize("address", OURS)
def test_an_address_of_ours_has_no_other(address: str) -> None:
    assert notations.plain(address) is None
    assert notations.advice(address) is None


def test_a_password_is_not_repeated_and_advice_is_short() -> None:
    advice = notations.advice("amqp://user:secret@host/" + "q" * 9999)
    assert advice is not None
    assert "secret" not in advice
    assert len(advice) < MAX_NAME


@pytest.mark.parametrize(
    "command", [c.DeclareQueue("/queues/q", "fifo", {}), c.Purge("queue://q"), c.DeleteExchange("/exchanges/q")]
)
def test_a_command_that_names_it_is_answered_with_it(command: c.Command) -> None:
    with pytest.raises(errors.PenstockError, match="an address here has no prefix and no URL: use 'q'"):
        decide(BrokerState(), command, c.Now(0, 0))
