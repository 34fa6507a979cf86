"""fe2o3-amqp after a refused attach. If the session's next attach comes early, it sends a second detach before that."""

from __future__ import annotations

import pytest

from penstock import Broker

from .conftest import Start
from .driving import Refused
from .test_each import bodies, text

ATTACHES = [("send", {"to": "nowhere", "messages": [text("x")]}), ("receive", {"from_": "nowhere"})]


@pytest.mark.parametrize(("do", "arguments"), ATTACHES, ids=["sender", "receiver"])
def test_two_detaches_cost_the_other_sessions_nothing(
    do: str, arguments: dict[str, object], start: Start, broker: Broker, queue: str
) -> None:
    """The second detach ends the next link in the client itself, which then ends its session without the broker's reason."""
    client = start("fe2o3_amqp", broker.amqp_url)
    for number in range(3):
        for _ in range(2):
            client.start(do, session=number + 1, **arguments)
        for reasons in ({"amqp:not-found"}, {"amqp:not-found", "Illegal link state"}):
            with pytest.raises(Refused) as refused:
                client.finish()
            assert {refused.value.condition, refused.value.description} & reasons
        client.send(queue, text(str(number)))
        assert bodies(client.receive(queue, 1)) == [str(number)]
