"""The end of a connection is an event message."""

from __future__ import annotations

import json
from pathlib import Path

from ..journal.lying_disk import LyingDisk
from ..service.helpers import everything
from .harness import stage


def test_a_connection_that_is_closed_is_an_event(tmp_path: Path) -> None:
    with stage(tmp_path, disk=LyingDisk()) as s:
        s.declare("$events", maxMessages=10, overflow="ring")
        s.script(container_id="worker").drop()
        s.until(lambda: s.counts("$events") == {"available": 1}, "the event")
        (body,) = everything(s.service, "$events").values()
        event = json.loads(body)
        assert (event["event"], event["user"], event["container"]) == ("connection-closed", "anonymous", "worker")
