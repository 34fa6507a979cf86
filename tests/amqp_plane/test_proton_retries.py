"""Q23 with an independent client: python-qpid-proton fails messages, and gets them again in time."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from ..service.helpers import Clock, enqueue
from .harness import stage

pytest.importorskip("proton")

from proton import Delivery, symbol
from proton.utils import BlockingConnection

PATIENCE_S = 30


def test_a_message_that_proton_modifies_comes_again_after_the_delay_at_its_own_place(tmp_path: Path) -> None:
    """The delay is that of the annotations, or else the queue's, which grows."""
    with stage(tmp_path, clock=Clock()) as made:
        made.declare("q", retryDelay=10_000, retryBackoff=3)
        made.service.submit(enqueue("q", b"m0", b"m1"))
        connection = BlockingConnection("amqp://{}:{}".format(*made.address), timeout=PATIENCE_S)
        receiver = connection.create_receiver("q")  # credit for one message, with each call of receive

        def fails(annotations: dict[Any, Any] | None = None) -> None:
            delivery = receiver.fetcher.unsettled.popleft()
            delivery.local.failed = True
            if annotations:
                delivery.local.annotations = annotations
            delivery.update(Delivery.MODIFIED)
            delivery.settle()
            end = time.monotonic() + PATIENCE_S
            connection.container.timeout = 0.02  # no event wakes proton meanwhile
            while made.counts("q").get("delayed") != 1:
                assert time.monotonic() < end, "the message is not delayed"
                connection.container.process()

        def receives() -> tuple[bytes, int]:
            message = receiver.receive(timeout=PATIENCE_S)
            return bytes(message.body), message.delivery_count

        assert receives() == (b"m0", 0)
        fails()
        assert made.counts("q") == {"delayed": 1, "available": 1}
        made.pass_time(9.999)
        assert made.counts("q") == {"delayed": 1, "available": 1}
        made.pass_time(0.001)
        for count, seconds, annotations in ((1, 30, None), (2, 7, {symbol("x-opt-delivery-delay"): 7_000})):
            assert receives() == (b"m0", count), "before the one that came later"
            fails(annotations)
            made.pass_time(seconds - 0.001)
            assert made.counts("q") == {"delayed": 1, "available": 1}
            made.pass_time(0.001)
        assert [receives(), receives()] == [(b"m0", 3), (b"m1", 0)]
        connection.close()
