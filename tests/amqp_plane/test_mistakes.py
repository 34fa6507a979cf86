"""A mistake of the broker's about one connection ends this connection: its client hears so instead of waiting for ever."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp import Condition
from penstock.broker_core.amqp.performatives import Accepted, Close, Disposition
from penstock.broker_core.amqp_plane.links import attaching
from penstock.broker_core.amqp_plane.links.consuming import Consuming
from penstock.broker_core.amqp_plane.links.incoming import Incoming

from ..service.helpers import enqueue
from .frames import receives, transfer
from .harness import stage


def sends_a_message(a: Any) -> None:
    a.sender()
    a.send(transfer(0))


def attaches(a: Any) -> None:
    a.send(receives())


def fails(*given: Any, **named: Any) -> None:
    raise RuntimeError("a mistake")


@pytest.mark.parametrize(
    ("owner", "method", "does"),
    [
        pytest.param(Incoming, "confirmed", sends_a_message, id="as a message is confirmed"),
        pytest.param(Consuming, "deliver", None, id="as messages are delivered"),
        pytest.param(Consuming, "take", None, id="as a link acquires"),
        pytest.param(attaching, "_carry_out", attaches, id="as an attach is carried out"),
        pytest.param(attaching, "_answer", attaches, id="as an attach is answered"),
    ],
)
def test_a_mistake_ends_its_connection_with_an_error_and_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, owner: Any, method: str, does: Callable[[Any], None] | None
) -> None:
    with stage(tmp_path) as s:
        s.declare("q", "r")
        a = s.script("a", container_id="a").usual()
        other = s.script("other", container_id="other").usual()
        other.sender("r")
        with monkeypatch.context() as patch:
            patch.setattr(owner, method, fails)
            if does is None:
                s.service.submit(enqueue("q", b"x"))
                a.receiver(credit=1)
            else:
                does(a)
            close = a.expect(Close)
            assert close.error.condition == Condition.INTERNAL_ERROR
            assert "connect again" in close.error.description
            a.send(Close())
        other.send(transfer(0))
        other.expect(Disposition, first=0, state=Accepted())
        again = s.script("again", container_id="again").usual()
        again.sender()
        again.send(transfer(0))
        again.expect(Disposition, first=0, state=Accepted())
