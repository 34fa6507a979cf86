"""A program with the vendor's Python SDK: one command a line on stdin, one answer a line on stdout (see driving.py).

| do | arguments | answer |
|---|---|---|
| open | connection (a connection string), websocket | |
| send | to (queue or topic), messages, batch | |
| schedule | to, messages, at (seconds since 1970) | numbers |
| cancel | to, numbers | |
| receive | from, count, wait (s), delete, prefetch | messages, which stay locked |
| receive_deferred | from, numbers, delete | messages, which stay locked |
| peek | from, count, number | messages |
| settle | token, how (complete, abandon, defer, dead_letter), reason, description | |
| renew | token | until (seconds since 1970) |
| close | from | |

`from` is QUEUE, QUEUE/dead, or TOPIC/SUBSCRIPTION. A message is a map with `body` and names of `ServiceBusMessage`.
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent / "lib"))

from azure.servicebus import ServiceBusClient, ServiceBusMessage, TransportType

SEEN = (
    "message_id", "session_id", "subject", "to", "reply_to", "correlation_id", "content_type", "partition_key", "delivery_count",
    "sequence_number", "dead_letter_reason", "dead_letter_error_description", "dead_letter_source",
)  # fmt: skip
TIMES = ("enqueued_time_utc", "locked_until_utc", "expires_at_utc", "scheduled_enqueue_time_utc")


class Conversation:
    def __init__(self) -> None:
        self.receivers: dict[str, Any] = {}
        self.senders: dict[str, Any] = {}
        self.locked: dict[str, tuple[Any, Any]] = {}  # receiver and message, by lock token

    def open(self, connection: str, websocket: bool = False, **options: Any) -> None:
        kind = TransportType.AmqpOverWebsocket if websocket else TransportType.Amqp
        self.client = ServiceBusClient.from_connection_string(connection, retry_total=0, transport_type=kind, **options)

    def _sender(self, to: str) -> Any:
        if to not in self.senders:
            self.senders[to] = self.client.get_queue_sender(to)
        return self.senders[to]

    def _receiver(self, from_: str, delete: bool = False, prefetch: int = 0) -> Any:
        if from_ not in self.receivers:
            mode = {"receive_mode": "receiveanddelete" if delete else "peeklock", "prefetch_count": prefetch}
            name, _, rest = from_.partition("/")
            if rest == "dead":
                mode["sub_queue"] = "deadletter"
            elif rest:
                self.receivers[from_] = self.client.get_subscription_receiver(name, rest, **mode)
                return self.receivers[from_]
            self.receivers[from_] = self.client.get_queue_receiver(name, **mode)
        return self.receivers[from_]

    def send(self, to: str, messages: list[dict[str, Any]], batch: bool = False) -> None:
        sender = self._sender(to)
        several = [_message(message) for message in messages]
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

    def close(self, from_: str | None = None) -> None:
        if from_ is not None:
            self.receivers.pop(from_).close()
        else:
            for end in (*self.receivers.values(), *self.senders.values()):
                end.close()
            self.client.close()


def _message(fields: dict[str, Any]) -> ServiceBusMessage:
    fields = dict(fields)
    if "time_to_live" in fields:
        fields["time_to_live"] = timedelta(seconds=fields["time_to_live"])
    if "scheduled_enqueue_time_utc" in fields:
        fields["scheduled_enqueue_time_utc"] = datetime.fromtimestamp(fields["scheduled_enqueue_time_utc"], timezone.utc)
    return ServiceBusMessage(fields.pop("body"), **fields)


def _seen(message: Any) -> dict[str, Any]:
    properties = {_text(name): _text(value) for name, value in (message.application_properties or {}).items()}
    times = {name: time.timestamp() for name in TIMES if (time := getattr(message, name)) is not None}
    return {
        "body": b"".join(message.body).decode(errors="replace"),
        "token": None if message.lock_token is None else str(message.lock_token),
        "state": message.state.name,
        "properties": properties,
        **{name: getattr(message, name) for name in SEEN},
        **times,
    }


def _text(value: Any) -> Any:
    return value.decode() if isinstance(value, bytes) else value


def main() -> None:
    conversation = Conversation()
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
