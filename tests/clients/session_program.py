"""A program with sessions of the vendor's Python SDK: one command a line on stdin, one answer a line on stdout (see driving.py).

The first argument is the folder of the SDK. Each receiver has a name.

| do | arguments | answer |
|---|---|---|
| open | connection (a connection string) | |
| send | to, messages, batch, at (seconds since 1970: scheduled) | |
| accept | name, from, session (null: the next one), wait (s), delete | session, until (seconds since 1970) |
| receive | name, count, wait | messages |
| settle | name, number (its sequence number), how | |
| renew, state | name | until; state |
| set | name, state, size (instead of a text) | |
| peek | name, count | bodies |
| list | from, since (seconds since 1970) | sessions |
| leave | name (without: all) | |
| work | from | steps: sessions, their messages and states, until no session has messages, or an error |
"""

from __future__ import annotations

import json
import sys
from datetime import datetime, timezone
from typing import Any

sys.path.insert(0, sys.argv[1] + "/lib")

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusClient, ServiceBusMessage
from azure.servicebus.exceptions import OperationTimeoutError


class Conversation:
    def __init__(self) -> None:
        self.senders: dict[str, Any] = {}
        self.receivers: dict[str, Any] = {}
        self.held: dict[tuple[str, int], Any] = {}

    def open(self, connection: str) -> None:
        self.client = ServiceBusClient.from_connection_string(connection, retry_total=0)

    def send(self, to: str, messages: list[dict[str, Any]], batch: bool = False, at: float | None = None) -> None:
        several = [ServiceBusMessage(message.pop("body"), **message) for message in messages]
        if to not in self.senders:
            self.senders[to] = self.client.get_queue_sender(to)
        sender = self.senders[to]
        if at is not None:
            sender.schedule_messages(several, datetime.fromtimestamp(at, timezone.utc))
        else:
            for part in [several] if batch else several:
                sender.send_messages(part)

    def accept(
        self, name: str, from_: str, session: str | None = None, wait: float | None = 5, delete: bool = False
    ) -> dict[str, Any]:
        options = {
            "session_id": NEXT_AVAILABLE_SESSION if session is None else session,
            "max_wait_time": wait,
            "receive_mode": "receiveanddelete" if delete else "peeklock",
        }
        topic, _, subscription = from_.partition("/")
        if subscription:
            receiver = self.client.get_subscription_receiver(topic, subscription, **options)
        else:
            receiver = self.client.get_queue_receiver(topic, **options)
        self.receivers[name] = receiver
        receiver.__enter__()
        if receiver.session.locked_until_utc is None:  # it was refused, which the SDK notes with its next call
            receiver.receive_messages(1)
        return {"session": receiver.session.session_id, "until": receiver.session.locked_until_utc.timestamp()}

    def receive(self, name: str, count: int = 1, wait: float = 5) -> dict[str, Any]:
        messages: list[Any] = []
        while len(messages) < count:  # a call ends early if messages come in several reads
            more = self.receivers[name].receive_messages(count - len(messages), max_wait_time=wait)
            if not more:
                break
            messages += more
        self.held |= {(name, message.sequence_number): message for message in messages}
        return {"messages": [_seen(message) for message in messages]}

    def settle(self, name: str, number: int, how: str = "complete") -> None:
        getattr(self.receivers[name], f"{how}_message")(self.held[name, number])

    def renew(self, name: str) -> dict[str, Any]:
        return {"until": self.receivers[name].session.renew_lock().timestamp()}

    def state(self, name: str) -> dict[str, Any]:
        state = self.receivers[name].session.get_state()
        return {"state": None if state is None else state.decode()}

    def set(self, name: str, state: str | None = None, size: int = 0) -> None:
        self.receivers[name].session.set_state("x" * size if size else state)

    def peek(self, name: str, count: int = 10) -> dict[str, Any]:
        return {"bodies": [_seen(message)["body"] for message in self.receivers[name].peek_messages(count, sequence_number=1)]}

    def list(self, from_: str, since: float | None = None) -> dict[str, Any]:
        after = None if since is None else datetime.fromtimestamp(since, timezone.utc)
        return {"sessions": [*self.client.list_queue_sessions(from_, state_updated_after=after)]}

    def work(self, from_: str) -> dict[str, Any]:
        """Process sessions until none has messages. The state of each is its last message.

        *sets* and *completes* are noted before the step, the other kinds after it.
        """
        steps: list[tuple[str, str, str | None]] = []
        try:
            while True:
                self._work_on_a_session(from_, steps)
        except OperationTimeoutError:
            pass  # no session has messages
        except Exception as error:
            steps.append(("error", type(error).__name__, str(error)))
        return {"steps": steps}

    def _work_on_a_session(self, from_: str, steps: list[tuple[str, str, str | None]]) -> None:
        with self.client.get_queue_receiver(from_, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=1) as receiver:
            state, session = receiver.session.get_state(), receiver.session.session_id
            steps.append(("state", session, None if state is None else state.decode()))
            while messages := receiver.receive_messages(5, max_wait_time=0.2):
                for message in messages:
                    body = b"".join(message.body).decode()
                    steps.append(("sets", session, body))
                    receiver.session.set_state(body)
                    steps += [("set", session, body), ("completes", session, body)]
                    receiver.complete_message(message)
                    steps.append(("completed", session, body))

    def leave(self, name: str | None = None) -> None:
        for left in [*self.receivers] if name is None else [name]:
            self.receivers.pop(left).close()


def _seen(message: Any) -> dict[str, Any]:
    return {
        "body": b"".join(message.body).decode(),
        "session": message.session_id,
        "number": message.sequence_number,
        "attempts": message.delivery_count,
    }


def main() -> None:
    conversation = Conversation()
    for line in sys.stdin:
        command = {name + "_" * (name == "from"): value for name, value in json.loads(line).items()}
        try:
            answer = getattr(conversation, command.pop("do"))(**command) or {}
        except Exception as error:
            answer = {"error": {"level": type(error).__name__, "condition": None, "description": str(error)}}
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
