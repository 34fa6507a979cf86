"""Connection and links to a foreign broker."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...broker_core.errors import InvalidOption
from ..access import BrokerAccess

#: Seconds in which a broker must answer a login or an attach.
ANSWER_S = 30.0
#: Credit of a new link, while the size of its messages is unknown.
FIRST_CREDIT = 100
#: Credit of a link, at most: enough for a distance of 50 ms at 100,000 messages a second.
MOST_CREDIT = 5000


def connected(access: BrokerAccess) -> Any:
    """Connect and log in. Raises PeerError, Unauthenticated."""
    return access.amqp(ANSWER_S)


def attached(connection: Any, queues: Sequence[str], readers: int, selector: str | None) -> list[tuple[int, Any]]:
    """Attach `readers` links to each queue; return each link with the index of its queue. Raises the broker's refusal."""
    if selector is not None and connection.is_rabbitmq_3:  # it would send messages before it has answered
        raise _without_selectors(connection)
    links = []
    for number, queue in enumerate(queues):
        for _ in range(readers):
            receiver = connection.block_receiver(queue, FIRST_CREDIT, selector=selector)
            if selector is not None and not receiver.selects:
                raise _without_selectors(connection)
            links.append((number, receiver))
    return links


def _without_selectors(connection: Any) -> InvalidOption:
    return InvalidOption(
        f"option selector: the broker at {connection.name} has no selectors (it does not confirm the filter"
        " apache.org:selector-filter:string, or is RabbitMQ 3), so it would send every message: leave the option out,"
        " filter rows"
    )
