"""Common parts of the tests of `penstock.broker_core.client.app`: round trips, filled queues, and a coordinator for the peer."""

from __future__ import annotations

import re
import threading
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from penstock.broker_core import amqp
from penstock.broker_core.amqp import Accepted, Rejected, events
from penstock.broker_core.amqp.composites import compose
from penstock.broker_core.amqp.performatives import (
    Coordinator,
    Declare,
    Declared,
    Discharge,
    Error,
    TransactionalState,
)
from penstock.broker_core.amqp.states import LinkState
from penstock.broker_core.client.app import Connection, Session
from penstock.broker_core.client.app.opening import Opener
from penstock.broker_core.client.app.server import ServerConnection
from penstock.broker_core.client.app.servers import Environment
from penstock.broker_core.client.flight import Client
from penstock.broker_core.server.child import Broker

from .peer import Peer

#: Limit of a wait, seconds. Only a test that hangs reaches it.
LIMIT_S = 30.0
#: The first server connection of each connection.
_FIRST: WeakKeyDictionary[Connection, ServerConnection] = WeakKeyDictionary()


def connect(urls: str | Sequence[str], **options: Any) -> Connection:
    """`connect`, with the clocks, the randomness and the pauses among `options`."""
    environment = {name: options.pop(name) for name in Environment._fields if name in options}
    connection = Opener(Environment(**environment)).connect(urls, **options)
    _FIRST[connection] = connection.current_server()
    return connection


def has_reconnected(connection: Connection) -> bool:
    """Return True once the connection uses a server again, after the loss of its first one."""
    with connection.changed:
        return connection.url is not None and connection.current_server() is not _FIRST[connection]


def stat(broker: Broker, queue: str) -> dict[str, Any]:
    with Client(broker.url) as client:
        return client.call("queue.stat", queue=queue)


def bodies(*names: str, **header: Any) -> list[bytes]:
    """Encoded messages, in order."""
    return [amqp.Message(header=amqp.performatives.Header(**header), data=[name.encode()]).encode() for name in names]


def round_trip(session: Session) -> None:
    """Wait until everything sent before is at the peer, which answers in order."""
    session.consumer("round trip").close()


def outcomes_by_body(peer: Peer) -> list[tuple[bytes, str]]:
    """Return the outcomes that the peer has received, by the body of their message, in order."""
    return [(body_of(peer.payload(tag)), type(state).__name__) for tag, state in peer.outcomes]


def body_of(payload: bytes) -> bytes:
    return b"".join(amqp.decode_message(payload).data)


def program_of(repository: Path, text: str, url: str) -> str:
    """Return the Python program in docs/clients.md that contains `text`, for the broker at `url`."""
    programs = re.findall(r"```python\n(.*?)```", (repository / "docs" / "clients.md").read_text(), re.S)
    (program,) = (program for program in programs if text in program)
    return str(program.replace("amqp://127.0.0.1:5672", url))


class Gate:
    """A hook for the peer: a test can wait for an event of one kind."""

    def __init__(self, kind: type) -> None:
        self.kind = kind
        self.come = threading.Event()

    def __call__(self, peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, self.kind):
            self.come.set()
        return False

    def wait(self) -> None:
        assert self.come.wait(LIMIT_S)


class Transactions:
    """A hook for the peer: a coordinator (part 4). `committed` holds a list of bodies and outcomes for each committed
    transaction, `log` the requests. `refuse` makes the next commit fail, `detach` ends the control link instead.
    """

    def __init__(self) -> None:
        self.log: list[str] = []
        self.committed: list[list[Any]] = []
        self.work: dict[bytes, list[Any]] = defaultdict(list)
        self.refuse = self.detach = False
        self.rejected: set[bytes] = set()

    def __call__(self, peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached) and isinstance(event.attach.target, Coordinator):
            event.link.attach(source=event.attach.source, target=event.attach.target)
            assert isinstance(event.link, amqp.Receiver)
            event.link.grant(10)
            return True
        if isinstance(event, events.Delivered):
            for delivery in event.deliveries:
                self._delivered(event.link, delivery)
            if event.link.state is LinkState.ATTACHED and event.link.link_credit <= peer.credit // 2:
                event.link.grant(peer.credit)
            return True
        if isinstance(event, events.Disposed) and isinstance(event.state, TransactionalState):
            assert not event.settled, "after a rollback the deliveries are still the link's"
            name = type(event.state.outcome).__name__
            self.work[event.state.txn_id] += [(name, body_of(peer.payload(delivery.tag))) for delivery in event.deliveries]
            return True
        return False

    def _delivered(self, link: Any, delivery: Any) -> None:
        session = link.session
        if isinstance(link.target, Coordinator):
            self._asked(link, delivery, compose(amqp.decode_message(delivery.payload).value))
        elif isinstance(delivery.remote_state, TransactionalState):
            name, body = delivery.remote_state.txn_id, body_of(delivery.payload)
            outcome: Any = Rejected(error=Error(condition="amqp:not-allowed")) if body in self.rejected else Accepted()
            self.work[name].append(("sent", body))
            session.dispose([delivery], TransactionalState(txn_id=name, outcome=outcome))
        else:
            session.dispose([delivery], Accepted())

    def _asked(self, link: Any, delivery: Any, request: object) -> None:
        outcome: Any = Accepted()
        if isinstance(request, Declare):
            outcome = Declared(txn_id=b"txn-%d" % len(self.log))
            self.log.append("declare")
        else:
            assert isinstance(request, Discharge)
            self.log.append("rollback" if request.fail else "commit")
            work = self.work.pop(request.txn_id, [])
            if self.detach:
                link.detach(error=Error(condition="amqp:transaction:rollback", description="too late"))
                return
            if self.refuse and not request.fail:
                outcome = Rejected(error=Error(condition="amqp:transaction:rollback", description="out of disk"))
            elif not request.fail:
                self.committed.append(work)
        link.session.dispose([delivery], outcome)
