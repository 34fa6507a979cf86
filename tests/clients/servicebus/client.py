"""A program with the vendor's Python SDK: one command a line on stdin, one answer a line on stdout (see driving.py).

The programs in ../servicebus_js and ../servicebus_java have the same commands. With the argument `aio` this one uses the SDK's
asyncio client.

| do | arguments | answer |
|---|---|---|
| open | connection (a connection string), websocket, ca (a file; TLS), retries | |
| send | to (queue or topic), messages, batch (a batch made before), together (a list in one call) | |
| schedule | to, messages, at (seconds since 1970) | numbers |
| cancel | to, numbers | |
| receive | from, count, wait (s), delete, prefetch, auto_renew (s) | messages, which stay locked |
| receive_deferred | from, numbers, delete | messages, which stay locked |
| accept | from, session (without: the next one), wait (s), delete | session; until (not Java) |
| renew_session, state | from (that has accepted a session) | until; state |
| set_state | from, state (null: remove it) | |
| process | from, count, fail (bodies that fail at first), busy (s for each), auto_renew (s) | messages, in the SDK's own loop |
| peek | from, count, number | messages |
| settle | token, how (complete, abandon, defer, dead_letter), reason, description; changed (JavaScript, Java: properties) | |
| renew | token | until (seconds since 1970) |
| transact (Java) | to, messages, tokens (of messages to complete), commit | |
| rules, create_rule, delete_rule (JavaScript, Java) | from, name, sql or correlation (fields) | names |
| leave | | the links are closed, the connection stays |
| close | from | soon afterwards, the link is closed |

`from` is QUEUE or TOPIC/SUBSCRIPTION, each also with `/dead`. A suffix such as `#2` is another receiver. The other commands use
the receiver of a session that has accepted one. A message is a map with `body` (or `value`, `sequence`) and names of
`ServiceBusMessage`. Without a language, a command is in all programs.
"""

from __future__ import annotations

import asyncio
import inspect
import json
import sys
import threading
import time
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "lib"))

from azure.servicebus import NEXT_AVAILABLE_SESSION, AutoLockRenewer, ServiceBusClient, ServiceBusMessage, TransportType, aio
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType

SEEN = (
    "message_id", "session_id", "subject", "to", "reply_to", "reply_to_session_id", "correlation_id", "content_type",
    "partition_key", "delivery_count", "sequence_number", "dead_letter_reason", "dead_letter_error_description",
    "dead_letter_source",
)  # fmt: skip
TIMES = ("enqueued_time_utc", "locked_until_utc", "expires_at_utc", "scheduled_enqueue_time_utc")


class Blocking:
    """A part of the asyncio SDK that is used without `await`: a thread's event loop carries out its calls."""

    loop = asyncio.new_event_loop()

    def __init__(self, part: Any) -> None:
        self._part = part

    def __getattr__(self, name: str) -> Any:
        value = getattr(self._part, name)
        if not callable(value):
            return _blocking(value)

        async def call(*arguments: Any, **options: Any) -> Any:
            result = value(*(other._part if isinstance(other, Blocking) else other for other in arguments), **options)
            return await result if inspect.isawaitable(result) else result

        def wait(*arguments: Any, **options: Any) -> Any:
            return _blocking(asyncio.run_coroutine_threadsafe(call(*arguments, **options), self.loop).result())

        return wait


def _blocking(value: Any) -> Any:
    return Blocking(value) if type(value).__module__.startswith("azure.servicebus.aio") else value


class Conversation:
    def __init__(self, is_aio: bool) -> None:
        self.is_aio = is_aio
        if is_aio:
            threading.Thread(target=Blocking.loop.run_forever, daemon=True).start()
        self.receivers: dict[str, Any] = {}
        self.senders: dict[str, Any] = {}
        self.locked: dict[str, tuple[Any, Any]] = {}  # receiver and message, by lock token

    def open(self, connection: str, websocket: bool = False, ca: str | None = None, retries: int = 0, **options: Any) -> None:
        kind = TransportType.AmqpOverWebsocket if websocket else TransportType.Amqp
        if ca is not None:  # for another port than 5671 and 443, and another authority
            place = connection.partition("Endpoint=")[2].partition(";")[0]
            options |= {"custom_endpoint_address": place, "connection_verify": ca}
        more = {"retry_total": retries, "retry_backoff_factor": 0.2, "transport_type": kind, **options}
        make: Any = Blocking(aio.ServiceBusClient) if self.is_aio else ServiceBusClient
        self.client = make.from_connection_string(connection, **more)

    def _sender(self, to: str) -> Any:
        if to not in self.senders:
            self.senders[to] = self.client.get_queue_sender(to)
        return self.senders[to]

    def _receiver(self, from_: str, delete: bool = False, prefetch: int = 0, auto_renew: float = 0, **session: Any) -> Any:
        if from_ not in self.receivers:
            mode: dict[str, Any] = {"receive_mode": "receiveanddelete" if delete else "peeklock", **session}
            mode["prefetch_count"] = prefetch
            if auto_renew:
                made = aio.AutoLockRenewer if self.is_aio else AutoLockRenewer
                mode["auto_lock_renewer"] = made(max_lock_renewal_duration=auto_renew)
            name, *rest = from_.partition("#")[0].split("/")
            if rest[-1:] == ["dead"]:
                mode["sub_queue"] = "deadletter"
                rest.pop()
            make = self.client.get_subscription_receiver if rest else self.client.get_queue_receiver
            self.receivers[from_] = make(name, *rest, **mode)
        return self.receivers[from_]

    def send(self, to: str, messages: list[dict[str, Any]], batch: bool = False, together: bool = False) -> None:
        sender = self._sender(to)
        several = [_message(message) for message in messages]
        if together:
            sender.send_messages(several)
            return
        if not batch:
            for message in several:
                sender.send_messages(message)
            return
        together = sender.create_message_batch()
        for message in several:
            together.add_message(message)
        sender.send_messages(together)

    def schedule(self, to: str, messages: list[dict[str, Any]], at: float) -> dict[str, Any]:
        when = datetime.fromtimestamp(at, timezone.utc)
        return {"numbers": self._sender(to).schedule_messages([_message(message) for message in messages], when)}

    def cancel(self, to: str, numbers: list[int]) -> None:
        self._sender(to).cancel_scheduled_messages(numbers)

    def receive(self, from_: str, count: int = 1, wait: float = 5, **mode: Any) -> dict[str, Any]:
        receiver = self._receiver(from_, **mode)
        messages: list[Any] = []
        while len(messages) < count:  # a call ends early if messages come in several reads
            more = receiver.receive_messages(count - len(messages), max_wait_time=wait)
            if not more:
                break
            messages += more
        self.locked |= {str(message.lock_token): (receiver, message) for message in messages}
        return {"messages": [_seen(message) for message in messages]}

    def receive_deferred(self, from_: str, numbers: list[int], **mode: Any) -> dict[str, Any]:
        receiver = self._receiver(from_, **mode)
        messages = receiver.receive_deferred_messages(numbers)
        self.locked |= {str(message.lock_token): (receiver, message) for message in messages}
        return {"messages": [_seen(message) for message in messages]}

    def accept(self, from_: str, session: str | None = None, wait: float = 5, delete: bool = False) -> dict[str, Any]:
        options = {"session_id": NEXT_AVAILABLE_SESSION if session is None else session, "max_wait_time": wait}
        receiver = self._receiver(from_, delete, **options)
        getattr(receiver, "__aenter__" if self.is_aio else "__enter__")()
        if receiver.session.locked_until_utc is None:  # it was refused, which the SDK notes with its next call
            receiver.receive_messages(1)
        return {"session": receiver.session.session_id, "until": receiver.session.locked_until_utc.timestamp()}

    def renew_session(self, from_: str) -> dict[str, Any]:
        return {"until": self.receivers[from_].session.renew_lock().timestamp()}

    def state(self, from_: str) -> dict[str, Any]:
        state = self.receivers[from_].session.get_state()
        return {"state": None if state is None else state.decode()}

    def set_state(self, from_: str, state: str | None) -> None:
        self.receivers[from_].session.set_state(state)

    def process(
        self, from_: str, count: int, fail: tuple[str, ...] = (), busy: float = 0, auto_renew: float = 0
    ) -> dict[str, Any]:
        receiver, messages = self._receiver(from_, auto_renew=auto_renew), list[dict[str, Any]]()
        while len(messages) < count:
            # The iterator of the asyncio client renews no locks.
            message = receiver.receive_messages(1, max_wait_time=20)[0] if self.is_aio else next(receiver)
            time.sleep(busy)
            messages.append(_seen(message))
            fails = messages[-1]["body"] in fail and not message.delivery_count
            (receiver.abandon_message if fails else receiver.complete_message)(message)
        return {"messages": messages}

    def peek(self, from_: str, count: int = 1, number: int = 0) -> dict[str, Any]:
        return {"messages": [_seen(m) for m in self._receiver(from_).peek_messages(count, sequence_number=number)]}

    def settle(self, token: str, how: str = "complete", reason: str | None = None, description: str | None = None) -> None:
        receiver, message = self.locked[token]
        details = {"reason": reason, "error_description": description} if how == "dead_letter" else {}
        getattr(receiver, f"{how}_message")(message, **details)

    def renew_again(self, token: str) -> None:
        """Ask to renew a lock of which the SDK itself has noted that it is gone."""
        receiver, message = self.locked[token]
        message._settled = False
        receiver.renew_message_lock(message)

    def renew(self, token: str) -> dict[str, Any]:
        receiver, message = self.locked[token]
        return {"until": receiver.renew_message_lock(message).timestamp()}

    def leave(self) -> None:
        for end in (*self.receivers.values(), *self.senders.values()):
            self._end(end)
        for ends in (self.receivers, self.senders, self.locked):
            ends.clear()

    def _end(self, link: Any) -> None:
        """A link has its own connection, and takes a second to end."""
        threading.Thread(target=link.close, daemon=True).start()

    def close(self, from_: str | None = None) -> None:
        if from_ is not None:
            self._end(self.receivers.pop(from_))
        else:
            self.leave()
            self.client.close()


def _message(fields: dict[str, Any]) -> Any:
    fields = dict(fields)
    if "value" in fields or "sequence" in fields:
        return AmqpAnnotatedMessage(**{f"{kind}_body": content for kind, content in fields.items()})
    if "time_to_live" in fields:
        fields["time_to_live"] = timedelta(seconds=fields["time_to_live"])
    if "scheduled_enqueue_time_utc" in fields:
        fields["scheduled_enqueue_time_utc"] = datetime.fromtimestamp(fields["scheduled_enqueue_time_utc"], timezone.utc)
    return ServiceBusMessage(fields.pop("body"), **fields)


def _seen(message: Any) -> dict[str, Any]:
    properties = {_text(name): _text(value) for name, value in (message.application_properties or {}).items()}
    times = {name: time.timestamp() for name in TIMES if (time := getattr(message, name)) is not None}
    kind, body = message.body_type, message.body
    if kind is AmqpMessageBodyType.DATA:
        body = b"".join(body).decode(errors="replace")
    elif kind is AmqpMessageBodyType.SEQUENCE:
        body = [_text(value) for part in body for value in part]
    return {
        "body": _text(body),
        "token": None if message.lock_token is None else str(message.lock_token),
        "state": message.state.name,
        "properties": properties,
        **{name: _text(getattr(message, name)) for name in SEEN},
        **times,
    }


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def main() -> None:
    conversation = Conversation(is_aio="aio" in sys.argv[1:])
    for line in sys.stdin:
        command = {name + "_" * (name == "from"): value for name, value in json.loads(line).items()}
        try:
            answer = getattr(conversation, command.pop("do"))(**command) or {}
        except Exception as error:
            condition = getattr(error, "_condition", None)
            level, text = type(error).__name__, str(error)
            answer = {"error": {"level": level, "condition": str(getattr(condition, "value", condition)), "description": text}}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
