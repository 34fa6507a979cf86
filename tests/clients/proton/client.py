"""python-qpid-proton as a client that takes commands: one line of JSON on stdin, one line of JSON as an answer on stdout.

../driving.py describes the commands and the form of messages, which the other programs also understand.
"""

from __future__ import annotations

import json
import sys
import uuid
from collections import deque
from typing import Any

from proton import (
    Condition,
    Delivery,
    Endpoint,
    Handler,
    Message,
    SSLDomain,
    byte,
    char,
    float32,
    int32,
    short,
    symbol,
    timestamp,
    ubyte,
    uint,
    ulong,
    ushort,
)
from proton.handlers import TransactionHandler
from proton.reactor import AtLeastOnce, AtMostOnce, Container, Copy, DurableSubscription, Selector
from proton.utils import BlockingConnection, ConnectionClosed

MAKERS: dict[str, Any] = {
    "null": lambda _: None,
    "boolean": bool,
    "ubyte": ubyte,
    "ushort": ushort,
    "uint": uint,
    "ulong": ulong,
    "byte": byte,
    "short": short,
    "int": int32,
    "long": int,
    "float": float32,
    "double": float,
    "char": char,
    "timestamp": timestamp,
    "uuid": uuid.UUID,
    "binary": bytes.fromhex,
    "string": str,
    "symbol": symbol,
    "list": lambda items: [value_of(item) for item in items],
    "map": lambda pairs: {value_of(key): value_of(value) for key, value in pairs},
}
NAMES: dict[type, str] = {ubyte: "ubyte", ushort: "ushort", uint: "uint", ulong: "ulong", byte: "byte", short: "short"}
NAMES |= {int32: "int", int: "long", float32: "float", float: "double", char: "char", timestamp: "timestamp"}
NAMES |= {str: "string", symbol: "symbol", bool: "boolean"}
#: Properties of a message: our name → proton's attribute.
PROPERTIES = {
    "to": "address",
    "subject": "subject",
    "reply-to": "reply_to",
    "content-type": "content_type",
    "content-encoding": "content_encoding",
    "group-id": "group_id",
    "group-sequence": "group_sequence",
    "reply-to-group-id": "reply_to_group_id",
}


def value_of(typed: dict[str, Any]) -> Any:
    ((name, value),) = typed.items()
    return MAKERS[name](value)


def typed(value: Any) -> dict[str, Any]:
    if value is None:
        return {"null": None}
    if isinstance(value, uuid.UUID):
        return {"uuid": str(value)}
    if isinstance(value, (bytes, memoryview)):
        return {"binary": bytes(value).hex()}
    if isinstance(value, list):
        return {"list": [typed(item) for item in value]}
    if isinstance(value, dict):
        return {"map": [[typed(key), typed(item)] for key, item in value.items()]}
    return {NAMES[type(value)]: value}


def message_of(fields: dict[str, Any]) -> Message:
    message = Message(durable=fields.get("durable", False), priority=fields.get("priority", 4), ttl=fields.get("ttl", 0) / 1000)
    properties = dict(fields.get("properties", {}))
    for name, attribute in (("message-id", "id"), ("correlation-id", "correlation_id")):
        if name in properties:
            setattr(message, attribute, value_of(properties.pop(name)))
    if "user-id" in properties:
        message.user_id = bytes.fromhex(properties.pop("user-id"))
    for name, attribute in (("absolute-expiry-time", "expiry_time"), ("creation-time", "creation_time")):
        if name in properties:
            setattr(message, attribute, properties.pop(name) / 1000)
    for name, value in properties.items():
        setattr(message, PROPERTIES[name], value)
    if "application" in fields:
        message.properties = {name: value_of(value) for name, value in fields["application"].items()}
    if "annotations" in fields:
        message.annotations = {symbol(name): value_of(value) for name, value in fields["annotations"].items()}
    ((kind, body),) = fields["body"].items()
    message.inferred = kind != "value"
    message.body = bytes.fromhex(body) if kind == "data" else value_of(body if kind == "value" else {"list": body})
    return message


def shown(octets: bytes) -> dict[str, Any]:
    message = Message()
    message.decode(octets)
    properties: dict[str, Any] = {name: getattr(message, attribute) for name, attribute in PROPERTIES.items()}
    # proton shows a missing symbol as symbol(None), which is the text "None".
    properties = {name: value for name, value in properties.items() if value and value != "None"}
    for name, value in (("message-id", message.id), ("correlation-id", message.correlation_id)):
        if value is not None:
            # proton forgets the type of a number; ids have only one type with numbers.
            properties[name] = typed(ulong(value) if isinstance(value, int) else value)
    if message.user_id:
        properties["user-id"] = message.user_id.hex()
    for name, seconds in (("absolute-expiry-time", message.expiry_time), ("creation-time", message.creation_time)):
        if seconds:
            properties[name] = round(seconds * 1000)
    body = typed(message.body)
    if message.inferred:
        body = {"data": body["binary"]} if "binary" in body else {"sequence": body["list"]}
    else:
        body = {"value": body}
    return {
        "durable": message.durable,
        "priority": message.priority,
        "ttl": round(message.ttl * 1000),
        "firstAcquirer": message.first_acquirer,
        "deliveryCount": message.delivery_count,
        "annotations": {str(name): typed(value) for name, value in (message.annotations or {}).items()},
        "properties": properties,
        "application": {name: typed(value) for name, value in (message.properties or {}).items()},
        "body": body,
        "encoded": octets.hex(),
    }


def refused(condition: Condition | None, level: str) -> dict[str, Any]:
    return {"level": level, "condition": condition and condition.name, "description": condition and condition.description}


class Link(Handler):
    """Notes the other end's actions on a link."""

    def __init__(self) -> None:
        self.arrived: deque[tuple[bytes, Delivery]] = deque()
        self.held: list[Delivery] = []
        self.closed: dict[str, Any] | None = None

    def on_link_remote_close(self, event: Any) -> None:
        self.closed = refused(event.link.remote_condition, "link")
        event.link.close()

    on_link_remote_detach = on_link_remote_close

    def on_delivery(self, event: Any) -> None:
        delivery = event.delivery
        if event.link.is_sender or not delivery.readable or delivery.partial:
            return
        octets = event.link.recv(delivery.pending)
        event.link.advance()
        self.arrived.append((octets, delivery))


def kind_of(option: Any) -> str:
    """Return a value that is equal for options with the same meaning."""
    return f"{type(option).__name__} {vars(option)}"


class Ending(TransactionHandler):
    """Ending of a transaction."""

    transaction: Any = None
    outcome = ""

    def on_transaction_declared(self, event: Any) -> None:
        self.transaction = event.transaction

    def on_transaction_committed(self, event: Any) -> None:
        self.outcome = "committed"

    def on_transaction_aborted(self, event: Any) -> None:
        self.outcome = "aborted"

    def on_transaction_declare_failed(self, event: Any) -> None:
        self.outcome = "not declared"

    def on_transaction_commit_failed(self, event: Any) -> None:
        self.outcome = "not committed"


class Failed(Exception):
    pass


class Client:
    def __init__(self) -> None:
        self.links: dict[tuple[Any, ...], tuple[Any, Link]] = {}
        self.sessions: dict[int, Any] = {}

    def open(self, url: str, user: str | None = None, password: str | None = None, **more: Any) -> dict[str, Any]:
        options: dict[str, Any] = {"user": user, "password": password, "allow_insecure_mechs": True, "timeout": 20}
        if more.get("mechanism") == "none":
            options["sasl_enabled"] = False
        elif more.get("mechanism"):
            options["allowed_mechs"] = more["mechanism"]
        if "ca" in more:
            options["ssl_domain"] = domain = SSLDomain(SSLDomain.MODE_CLIENT)
            domain.set_trusted_ca_db(more["ca"])
            domain.set_peer_authentication(SSLDomain.VERIFY_PEER_NAME)
            if "cert" in more:
                domain.set_credentials(more["cert"], more["key"], None)
        if "container" in more:
            options["container"] = Container()
            options["container"].container_id = more["container"]
        try:
            self.connection = BlockingConnection(url, **options)
        except ConnectionClosed as error:
            raise Failed(refused(error.condition, "connection")) from error
        except Exception as error:
            raise Failed({"level": "connection", "condition": None, "description": str(error)}) from error
        properties = self.connection.conn.remote_properties or {}
        return {"properties": {str(name): value for name, value in properties.items()}}

    def _link(self, make: str, address: str | None, session: int, *options: Any, name: str = "", **more: Any) -> tuple[Any, Link]:
        key = (make, address, session, name, *map(kind_of, options))
        if key not in self.links:
            conn = self.connection.conn
            if session and session not in self.sessions:
                self.sessions[session] = conn.session()
                self.sessions[session].open()
            handler = Link()
            create = getattr(self.connection.container, make)
            # proton names links after the address, so the second link with that name would take over the first one's place.
            name = name or str(uuid.uuid4())
            link = create(self.sessions.get(session, conn), address, name=name, handler=handler, options=list(options), **more)
            self.connection.wait(lambda: bool(link.state & Endpoint.REMOTE_ACTIVE) or handler.closed, timeout=20)
            # A refused link is attached without its terminus, and then detached.
            node = link.remote_source if make == "create_receiver" else link.remote_target
            if not node.address and address:
                self.connection.wait(lambda: handler.closed, timeout=20)
            if handler.closed:
                raise Failed(handler.closed)
            self.links[key] = (link, handler)
        return self.links[key]

    def send(
        self, to: str | None, messages: list[dict[str, Any]], session: int = 0, settled: bool = False, wait: float = 30
    ) -> dict[str, Any]:
        link, handler = self._link("create_sender", to, session, *([AtMostOnce()] if settled else []))
        deliveries = []
        for message in messages:
            self.connection.wait(lambda: link.credit or handler.closed, timeout=wait)
            if handler.closed:
                raise Failed(handler.closed)
            deliveries.append(link.send(message_of(message)))
        self.connection.wait(lambda: handler.closed or all(settled or d.settled for d in deliveries), timeout=wait)
        if handler.closed:
            raise Failed(handler.closed)
        return {"outcomes": [outcome(delivery) for delivery in deliveries]}

    def receive(self, count: int = 1, credit: int = 0, wait: float = 20, outcome: Any = "accept", **where: Any) -> dict[str, Any]:
        link, handler = self._receiver(**where)
        missing = (credit or count) - link.credit - len(handler.arrived)
        if missing > 0:
            link.flow(missing)
        self._until(lambda: len(handler.arrived) >= count or handler.closed, wait)
        return self._take(handler, count, outcome)

    def dynamic(self) -> dict[str, Any]:
        link, handler = self._link("create_receiver", None, 0, AtLeastOnce(), dynamic=True)
        del self.links["create_receiver", None, 0, "", kind_of(AtLeastOnce())]
        address = link.remote_source.address
        self.links["create_receiver", address, 0, "", kind_of(AtLeastOnce())] = (link, handler)
        return {"address": address}

    def transact(self, count: int, to: str, commit: bool, **where: Any) -> dict[str, Any]:
        """Move this number of messages in one transaction."""
        ending = Ending()
        self.connection.container.declare_transaction(self.connection.conn, handler=ending)
        self._until(lambda: ending.transaction or ending.outcome, 20)
        source, arriving = self._receiver(**where)
        target, _ = self._link("create_sender", to, 0)
        source.flow(count)
        self._until(lambda: len(arriving.arrived) >= count and target.credit >= count, 20)
        for octets, delivery in [arriving.arrived.popleft() for _ in range(count)]:
            message = Message()
            message.decode(octets)
            ending.transaction.send(target, message)
            ending.transaction.accept(delivery)
        (ending.transaction.commit if commit else ending.transaction.abort)()
        self._until(lambda: ending.outcome, 20)
        # After a rollback it releases the received messages: the release has to leave.
        self.connection.wait(lambda: self.connection.conn.transport.pending() <= 0, timeout=20)
        return {"result": ending.outcome}

    def drain(self, credit: int, outcome: Any = "accept", **where: Any) -> dict[str, Any]:
        link, handler = self._receiver(**where)
        link.drain(credit)
        self._until(lambda: handler.closed or not link.draining(), 20)
        return self._take(handler, len(handler.arrived), outcome)

    def _receiver(
        self, session: int = 0, browse: bool = False, selector: str = "", subscription: str = "", **where: str
    ) -> tuple[Any, Link]:
        options = [AtLeastOnce(), *([Copy()] if browse else []), *([Selector(selector)] if selector else [])]
        options += [DurableSubscription()] if subscription else []
        return self._link("create_receiver", where["from"], session, *options, name=subscription)

    def _until(self, condition: Any, wait: float) -> None:
        self.connection.wait(condition, timeout=wait)

    def _take(self, handler: Link, count: int, outcome: Any) -> dict[str, Any]:
        taken = [handler.arrived.popleft() for _ in range(min(count, len(handler.arrived)))]
        for _, delivery in taken:
            settle(delivery, outcome)
            if outcome == "hold":
                handler.held.append(delivery)
        # All frames must have left before the answer does.
        self.connection.wait(lambda: self.connection.conn.transport.pending() <= 0, timeout=20)
        return {"messages": [shown(octets) for octets, _ in taken]}

    def settle(self, outcome: Any = "accept", session: int = 0, browse: bool = False, **where: str) -> dict[str, Any]:
        """Settle held messages, in order."""
        _, handler = self._receiver(session, browse, **where)
        for delivery in handler.held:
            settle(delivery, outcome)
        handler.held.clear()
        self.connection.wait(lambda: self.connection.conn.transport.pending() <= 0, timeout=20)
        return {}

    def detach(self, **where: Any) -> dict[str, Any]:
        for key in [key for key in self.links if key[1] in where.values()]:
            link, handler = self.links.pop(key)
            link.close()
            self.connection.wait(lambda handler=handler: handler.closed is not None, timeout=20)
        return {}

    def close(self) -> dict[str, Any]:
        self.connection.close()
        return {}


def outcome(delivery: Delivery) -> dict[str, Any]:
    names = {Delivery.ACCEPTED: "accepted", Delivery.REJECTED: "rejected", Delivery.RELEASED: "released"}
    name = names.get(delivery.remote_state, "modified" if delivery.remote_state == Delivery.MODIFIED else "none")
    condition = delivery.remote.condition
    more = {"condition": condition.name, "description": condition.description} if name == "rejected" and condition else {}
    return {"outcome": name, **more}


def settle(delivery: Delivery, outcome: Any) -> None:
    if outcome == "hold":
        return
    if isinstance(outcome, str):
        delivery.update({"accept": Delivery.ACCEPTED, "reject": Delivery.REJECTED, "release": Delivery.RELEASED}[outcome])
    elif "reject" in outcome:
        delivery.local.condition = Condition(outcome["reject"]["condition"], outcome["reject"]["description"])
        delivery.update(Delivery.REJECTED)
    else:
        change = outcome["modify"]
        delivery.local.failed = change.get("failed", False)
        delivery.local.undeliverable = change.get("undeliverable", False)
        annotations = {symbol(name): value_of(value) for name, value in change.get("annotations", {}).items()}
        if annotations:
            delivery.local.annotations = annotations
        delivery.update(Delivery.MODIFIED)
    delivery.settle()


def main() -> None:
    client = Client()
    for line in sys.stdin:
        command = json.loads(line)
        do = command.pop("do")
        try:
            answer = getattr(client, do)(**command)
        except Failed as failed:
            answer = {"error": failed.args[0]}
        except Exception as error:
            answer = {"error": {"level": "client", "condition": None, "description": f"{type(error).__name__}: {error}"}}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
