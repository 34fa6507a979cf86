"""The queue of event messages needs a permission, like any queue."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.model.names import EVENTS
from penstock.broker_core.errors import NotAllowed
from penstock.broker_core.security import Right

from ..waiting import until
from .peers import Site


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    running = Site(tmp_path)
    yield running
    running.close()


def test_a_permission_opens_the_events(site: Site) -> None:
    site.service.submit(c.DeclareQueue(EVENTS, options={"maxMessages": 10, "overflow": "ring"}))
    other, monitor = site.user("other", Right.BROWSE, queue="orders"), site.user("monitor", Right.BROWSE, queue=EVENTS)
    site.service.events.note("test", "text")
    until(lambda: monitor.get(op="browse", queue=EVENTS, columns=["body"]), "the event")
    with pytest.raises(NotAllowed):
        other.get(op="browse", queue=EVENTS, columns=["body"])
