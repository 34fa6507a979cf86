"""A reconnect continues or reports its failure, in a process without descriptors, after a mistake, with a slow server.

The faults are real, or come from the clocks and the randomness of a connection.
"""

from __future__ import annotations

import subprocess
import sys
import textwrap
import threading

import pytest

from penstock.broker_core import amqp, errors
from penstock.broker_core.amqp import events

from ..waiting import until
from .applications import LIMIT_S, bodies, connect, round_trip
from .peer import Peer

#: Receives over a loss. The first attempt to reconnect has one descriptor, for the socket, and no descriptor for the pump.
STARVED = """
    import os, resource, sys
    from penstock.broker_core.client.app.opening import Opener
    from penstock.broker_core.client.app.servers import Environment

    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    attempts = []

    def pause(seconds, closing):
        attempts.append(seconds)

        if len(attempts) == 1:
            free = os.dup(0)
            os.close(free)

            resource.setrlimit(resource.RLIMIT_NOFILE, (free + 1, hard))
        else:
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))

    with Opener(Environment(pause=pause)).connect(sys.argv[1]) as connection:
        session = connection.session()
        consumer = session.consumer("q")

        session.consumer("other").close()  # a round trip: nothing is sent to this connection any more

        print("ready", flush=True)
        print(consumer.receive(30).body.decode(), len(attempts), flush=True)
"""


def test_c12_an_attempt_without_descriptors_is_followed_by_another() -> None:
    with Peer() as peer:
        command = [sys.executable, "-c", textwrap.dedent(STARVED), peer.url]
        with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as program:
            assert program.stdout is not None
            assert program.stdout.readline() == "ready\n"
            peer.queues["q"] += bodies("after the loss")
            peer.cut()
            output, log = program.communicate(timeout=2 * LIMIT_S)
        assert output == "after the loss 2\n", log
        assert len([event for event in peer.seen if isinstance(event, events.Opened)]) == 3  # the second one had no pump


def test_c12_a_server_that_is_slow_after_a_loss_ends_nothing() -> None:
    """A missing answer to an attach is a loss. Only a refusal ends a producer or consumer."""
    silent = threading.Event()

    def say_nothing_once(peer: Peer, machine: amqp.Connection, event: events.Event) -> bool:
        if isinstance(event, events.Attached) and silent.is_set():
            silent.clear()
            return True
        return False

    with (
        Peer(hook=say_nothing_once) as peer,
        connect(peer.url, timeout_s=3, pause=lambda seconds, closing: None) as connection,
    ):
        session = connection.session()
        producer, consumer = session.producer("out"), session.consumer("in")
        round_trip(session)  # a round trip: no more frames for this connection
        silent.set()
        peer.cut()
        peer.queues["in"] += bodies("in")
        message = consumer.receive(LIMIT_S)
        assert (message and message.body, silent.is_set()) == (b"in", False)
        producer.send("out", timeout_s=LIMIT_S)
        assert len(peer.received) == 1


def test_c12_a_mistake_in_the_reconnect_is_told_to_those_who_wait() -> None:
    failures: list[Exception] = []

    def random() -> float:
        raise ZeroDivisionError("a mistake")

    with Peer() as peer, connect(peer.url, random=random, on_error=failures.append) as connection:
        consumer = connection.session().consumer("q")
        peer.cut()
        with pytest.raises(errors.PenstockError, match="a mistake"):
            consumer.receive(LIMIT_S)
        with pytest.raises(errors.PenstockError, match="a mistake"):
            connection.session()
        until(lambda: len(failures) == 2, "the loss and its result are reported")
