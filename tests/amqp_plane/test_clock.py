"""W5: the plane's clock goes on whatever is wrong with one connection."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

from .harness import Stage

LIMIT_S = 30


class Unforeseen:
    """Stands for a connection that a mistake of ours has left in a state from which nothing can be done."""

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
        stage.plane._loop.call_soon_threadsafe(stage.plane._wires.add, broken)
        with socket.create_connection(stage.address, timeout=LIMIT_S) as silent:
            assert silent.recv(1) == b""  # nobody may be here longer than a login takes
        assert broken.looked_at > 0
        assert broken.aborted == broken.looked_at
        assert "cannot be looked after" in caplog.text
    finally:
        stage.plane._loop.call_soon_threadsafe(stage.plane._wires.discard, broken)
        stage.close()
