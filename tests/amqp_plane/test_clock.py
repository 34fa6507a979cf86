"""W5: the plane's clock continues after any failure of one connection."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp.frames import protocol_header
from penstock.broker_core.amqp.performatives import Close, Open, SaslMechanisms, SaslOutcome
from penstock.broker_core.amqp_plane import plane

from ..service.helpers import Clock
from .harness import Stage, stage
from .logins import hear

LIMIT_S = 30


class Unforeseen:
    """A connection that a bug has left in an unusable state."""

    address = "nowhere"
    peer = None

    def __init__(self) -> None:
        self.looked_at = self.aborted = 0

    def tick(self, now: float) -> None:
        self.looked_at += 1
        raise RuntimeError("a mistake")

    def abort(self) -> None:
        self.aborted += 1


def test_who_is_silent_is_cut_off_also_beside_a_connection_that_cannot_be_looked_after(tmp_path: Path, caplog: Any) -> None:
    stage = Stage(tmp_path, amqp_login_timeout_s=0.5)
    broken: Any = Unforeseen()
    try:
        stage.plane._loop.call_soon_threadsafe(stage.plane._accepted.add, broken)
        with socket.create_connection(stage.address, timeout=LIMIT_S) as silent:
            assert silent.recv(1) == b""  # a connection may not exist longer than the login timeout before its open
        assert broken.looked_at > 0
        assert broken.aborted == broken.looked_at
        assert "cannot be looked after" in caplog.text
    finally:
        stage.plane._loop.call_soon_threadsafe(stage.plane._accepted.discard, broken)
        stage.close()


@pytest.mark.parametrize("sent", ["a header", "SASL's header"])
def test_a_login_that_takes_too_long_is_told_so(tmp_path: Path, sent: str) -> None:
    with stage(tmp_path, amqp_login_timeout_s=0.5) as s:
        a = s.script(open=False)
        if sent == "a header":
            a.say("header", protocol_header(0))
            a.hear_header()
            a.expect(Open)
            end = a.expect(Close)
            assert end.error is not None
            assert end.error.condition == "amqp:resource-limit-exceeded"
            a.send(Close())
        else:
            a.say("header SASL", protocol_header(3))
            a.hear_header()
            assert isinstance(hear(a), SaslMechanisms)
            assert hear(a) == SaslOutcome(code=4), "a temporary error of the system (5.3.3.6)"
        a.expect_end()


def test_a_stop_ends_though_the_broker_s_clock_stands_still(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A client that does not answer the close has the grace period, and no more."""
    monkeypatch.setattr(plane, "STOP_GRACE_S", 0.1)
    with stage(tmp_path, clock=Clock()) as s:
        s.script()
        s.stop()
        assert s._stopping is not None
        s._stopping.join(LIMIT_S)
        assert not s._stopping.is_alive()
