"""Drives a client program: a process with one connection, which takes commands and returns their results.

A command is one line of JSON with `do` and its arguments. The answer is one line of JSON:

| do | arguments | answer |
|---|---|---|
| open | url, user, password, mechanism (`none`: no SASL layer), ca, cert, key, idle (s), container, prefetch (qpid_jms) | |
| send | to (null: the anonymous terminus), messages, session, settled | outcomes |
| receive | from, count, credit, session, browse, selector, subscription, outcome, second (rhea, go_amqp) | messages |
| dynamic | | address: of a node that is made for a receiver, to receive from |
| transact (proton) | from, to, count, commit | result: committed, aborted |
| drain | from, credit, outcome | messages: those before the link was drained |
| settle | from, outcome | held messages are settled, in order |
| detach | from, to | |
| close | | |
| throughput (go_amqp) | url, address (or several), connections, count, size, window, way, wait | seconds |

An open answers with the broker's properties. A `subscription` is the name of a durable one. With `second` the receiver settles
second: the answer comes when the broker has settled each outcome. An outcome is `accept`, `reject`, `release`, `hold` (no
outcome), `{"reject": {condition, description}}` or `{"modify": {failed, undeliverable, annotations}}`. An error is `{"error":
{level, condition, description}}`, raised here as Refused.

A message has durable, priority, ttl (ms), annotations, properties, application, and a body. The properties have the
specification's names, times in ms and a hexadecimal user-id. The body is `{"data": hexadecimal}`, `{"value": V}` or `{"sequence":
[V …]}`. V and the values of application, annotations, message-id and correlation-id name their AMQP type: `{"int": 3}`,
`{"string": "x"}`, `{"list": [V …]}`, `{"map": [[V, V] …]}`. A received message shows the types as the client's language does.
"""

from __future__ import annotations

import json
import queue
import subprocess
import tempfile
import threading
from typing import Any

#: Limit of an answer, seconds: more than any program's own limit (30), so that a failed test shows the program's error.
ANSWER_LIMIT_S = 60


class Refused(Exception):
    """An error that the broker or the client program returned."""

    def __init__(self, error: dict[str, Any], output: str = "") -> None:
        super().__init__(f"{error}{output and f'; stderr: {output}'}")
        self.level: str = error["level"]
        self.condition: str | None = error["condition"]
        self.description: str | None = error["description"]


class Program:
    """`with Program(command_of("rhea")) as client: client.do("open", url=…)`."""

    def __init__(self, command: list[str]) -> None:
        self._stderr = tempfile.TemporaryFile()  # noqa: SIM115
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._stderr)
        self._answers: queue.Queue[bytes] = queue.Queue()
        self._under_way = 0  # unanswered commands
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def do(self, do: str, **arguments: Any) -> dict[str, Any]:
        """Carry out one command. Raises Refused."""
        self.start(do, **arguments)
        return self.finish()

    def start(self, do: str, **arguments: Any) -> None:
        """Send a command. `finish` returns its answer. (`from` is a keyword of Python, so it is written from_.)"""
        assert self.process.stdin is not None
        self._under_way += 1
        command = {"do": do, **{name.rstrip("_"): value for name, value in arguments.items()}}
        self.process.stdin.write(json.dumps(command).encode() + b"\n")
        self.process.stdin.flush()

    def finish(self) -> dict[str, Any]:
        try:
            line = self._answers.get(timeout=ANSWER_LIMIT_S)
        except queue.Empty:
            raise AssertionError(f"no answer within {ANSWER_LIMIT_S} s{self._stderr_tail()}") from None
        if not line:
            raise AssertionError(f"the client ended with exit code {self.process.wait()}{self._stderr_tail()}")
        self._under_way -= 1
        answer: dict[str, Any] = json.loads(line)
        if "error" in answer:
            raise Refused(answer["error"], self._stderr_tail())
        return answer

    def send(self, to: str | None, *messages: dict[str, Any], **more: Any) -> list[dict[str, Any]]:
        """The outcome of each message."""
        outcomes: list[dict[str, Any]] = self.do("send", to=to, messages=messages, **more)["outcomes"]
        return outcomes

    def receive(self, from_: str, count: int = 1, **more: Any) -> list[dict[str, Any]]:
        messages: list[dict[str, Any]] = self.do("receive", from_=from_, count=count, **more)["messages"]
        return messages

    def is_idle(self) -> bool:
        """Return whether it has closed its connection properly, and waits for the next one."""
        if self.process.poll() is not None or self._under_way:
            return False
        try:
            self.do("close")
        except (Refused, AssertionError):
            return False
        return True

    def kill(self) -> None:
        """End the process as if its machine lost power, except that the peer's system closes the connection."""
        self.process.kill()
        self.close()

    def close(self) -> None:
        """End the program by closing its stdin, which also ends its connection."""
        if self.process.stdin is not None and not self.process.stdin.closed:
            self.process.stdin.close()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self._reader.join()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self._stderr.close()

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._answers.put(line)
        self._answers.put(b"")

    def _stderr_tail(self) -> str:
        if self._stderr.closed:
            return ""
        self._stderr.seek(0)
        return self._stderr.read()[-2000:].decode(errors="replace").strip()
