"""Users of a stage, and the SASL layer of its scripts."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from penstock.broker_core.amqp import SaslClient
from penstock.broker_core.amqp.composites import Composite
from penstock.broker_core.amqp.frames import SASL_FRAME, SASL_ID, encode_frame, parse_frame, protocol_header
from penstock.broker_core.security import Access
from penstock.broker_core.security.users import User

from ..amqp.wire import show
from ..security.helpers import Clock, user, write
from .harness import HEADER_OCTETS, Script, Stage

Permissions = Mapping[str, Mapping[str, str]]


class Site:
    """A stage with users. The time of the users file advances only in `edit`."""

    def __init__(self, folder: Path, users: Mapping[str, User] | None = None, permissions: Permissions | None = None) -> None:
        self.path = folder / "users.json"
        self.clock = Clock()
        if users is not None:
            write(self.path, users, permissions)
        self.access = Access(self.path, clock=self.clock, monotonic=self.clock)

    def edit(self, users: Mapping[str, User], permissions: Permissions | None = None) -> None:
        """Write a new users file, as an operator does. The broker may read it from now on."""
        write(self.path, users, permissions)
        self.clock.pass_(1)


def log_in(stage: Stage, name: str, password: str = "secret", mechanism: str = "PLAIN", **fields: Any) -> Script:
    """Return a script that has logged in and opened its connection as `name`."""
    script = stage.script(name, open=False)
    assert exchange(script, SaslClient(name, password, prefer=(mechanism,), random=os.urandom)) == 0
    script.open(**{"container_id": name, **fields})
    return script


def exchange(script: Script, sasl: SaslClient) -> int | None:
    """Run the SASL layer from header to outcome; return its code, 0 for success."""
    begin_sasl(script)
    while not sasl.done:
        say(script, *sasl.receive(hear(script)))
    return sasl.code


def begin_sasl(script: Script) -> None:
    script.say("header SASL", protocol_header(SASL_ID))
    script.hear_header()


def say(script: Script, *bodies: Composite) -> None:
    for body in bodies:
        script.say(show(body), encode_frame(0, body.encode(), frame_type=SASL_FRAME))


def hear(script: Script) -> Composite:
    """Read the next SASL frame."""
    assert script._fill(HEADER_OCTETS), "the end of the stream"
    size = int.from_bytes(script._buffer[:4], "big")
    assert script._fill(size), "the end of the stream"
    octets, script._buffer = script._buffer[:size], script._buffer[size:]
    body = parse_frame(octets, 0, size, SASL_FRAME).performative
    assert body is not None
    script._line("<-", show(body))
    return body


__all__ = ["Site", "begin_sasl", "exchange", "hear", "log_in", "say", "user"]
