"""W5, C8: a client that leaves at each step of the golden transcripts: no state of it remains, its messages are back.

Each scenario runs as often as its clients send frames, and each time the connection ends one frame later, by a FIN or by a reset.
The scenario's own broker, with another client, is checked afterwards.
"""

from __future__ import annotations

import contextlib
import gc
import socket
import struct
import weakref
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp.performatives import Accepted, Disposition

from . import scenarios_attach, scenarios_ends, scenarios_incoming, scenarios_outgoing
from .frames import flow, message, says, transfer
from .harness import Scenario, Script, Stage

SCENARIOS: list[Scenario] = [
    scenarios_attach.everything_in_one_write,
    scenarios_attach.a_link_is_stolen_between_two_connections,
    scenarios_attach.sole_connection_closes_the_older,
    scenarios_incoming.several_frames_and_aborted,
    scenarios_incoming.anonymous_relay,
    scenarios_incoming.the_receiver_settles_second,
    scenarios_outgoing.outcomes,
    scenarios_outgoing.both_settle_modes_of_a_receiver,
    scenarios_outgoing.browsing_beside_an_acquirer,
    scenarios_outgoing.sent_settled,
    scenarios_ends.a_session_error_ends_its_links_alone,
    scenarios_ends.outcomes_before_an_end_hold,
]
NOT_COUNTED = ("filler", "bystander", "last")


class Left(Exception):
    """The client has gone."""


class Leaving(Stage):
    """A stage whose scripts send `steps` frames in total, and then leave."""

    def __init__(self, folder: Path, steps: int, how: str, **settings: Any) -> None:
        super().__init__(folder, fsync="never", **settings)
        self.steps, self.how = steps, how

    def script(self, name: str = "", **fields: Any) -> Script:
        opens = fields.pop("open", True)
        script = super().script(name, open=False)
        if name not in NOT_COUNTED:
            self._count(script)
        if opens:
            script.open(**fields)
        return script

    def _count(self, script: Script) -> None:
        say, send = script.say, script.send

        def say_one(text: str, *octets: bytes) -> None:
            self._step(script)
            say(text, *octets)

        def send_each(*bodies: Any, channel: int = 0) -> None:
            for at in range(len(bodies)):
                if self.steps <= at:
                    send(*bodies[:at], channel=channel)  # all earlier frames in one write
                    self._leave(script)
            self.steps -= len(bodies)
            send(*bodies, channel=channel)

        script.say, script.send = say_one, send_each  # type: ignore[method-assign]

    def _step(self, script: Script) -> None:
        if self.steps <= 0:
            self._leave(script)
        self.steps -= 1

    def _leave(self, script: Script) -> None:
        side = script._socket
        if self.how == "reset":
            side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        else:
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_WR)
                while side.recv(65536):  # the remaining output of the broker; then it also ends the connection
                    pass
        side.close()
        raise Left


def play(folder: Path, scenario: Scenario, steps: int, how: str) -> bool:
    """Say whether the client left before the end of the scenario. Fail if any state of it remains."""
    settings = {name: value() if callable(value) else value for name, value in getattr(scenario, "settings", {}).items()}
    s = Leaving(folder, steps, how, **settings)
    try:
        s.declare("q", "bystander")
        bystander = s.script("bystander", container_id="bystander").usual()
        bystander.sender("bystander")
        bystander.receiver("bystander", handle=1, credit=1)
        left = False
        try:
            scenario(s)
        except Left:
            left = True
        peers = [weakref.ref(wire.peer) for wire in s.plane._accepted if wire.peer is not None]
        for client in s._clients:
            if client is not bystander:
                client.drop(quietly=True)
        s.script("last", container_id="last").drop()  # accepted behind all others
        s.until(lambda: len(s.plane._accepted) == 1, "only the bystander is connected")
        s.settle()
        nothing_stays(s, peers)
        # The loop may still have the last one.
        s.until(lambda: not connections_in_memory(s, peers), "no connection that has ended is kept")
        bystander.send(transfer(0, message(b"still here"), handle=0))
        bystander.expect(Disposition, state=Accepted())
        bystander.expect_messages(b"still here")
        bystander.send(says(Accepted(), 0), flow(1, 1, count=1))
        bystander.nothing()
        return left
    finally:
        s.close()


def nothing_stays(s: Leaving, peers: list[Any]) -> None:
    assert len(s.plane._accepted) == 1
    passes, containers = s.plane.commit_loop, s.plane.containers
    assert {key[1] for key in s.plane.registry._attached} == {"bystander"}
    assert list(containers._peers) == [("anonymous", "bystander")]
    assert containers.users["anonymous"] == 1
    waiting = [link for interest in passes.acquisitions._queues.values() for link in interest.members.values()]
    assert {link.peer.container for link in waiting} == {"bystander"}
    assert not passes._batch._messages
    assert not passes._batch._outcomes
    assert not passes._batch._delayed
    assert not passes._batch._paused
    assert s.counts("q").get("acquired", 0) == 0, "its messages are back"
    with s.service.turn():
        consumers = [name for name, queue in s.service.state.queues.items() for _ in queue.consumers.subscriptions]
    assert consumers == ["bystander"], "lost clients are not consumers"


def connections_in_memory(s: Leaving, peers: list[Any]) -> list[str]:
    """Return ended connections that are still in memory."""
    [wire] = s.plane._accepted
    gc.collect()
    return [str(peer) for ref in peers if (peer := ref()) is not None and peer is not wire.peer]


@pytest.mark.parametrize("how", ["fin", "reset"])
@pytest.mark.parametrize("scenario", SCENARIOS, ids=lambda f: f.__name__)
def test_leaving_at_each_step(scenario: Scenario, how: str, tmp_path: Path) -> None:
    steps = 0
    while play(tmp_path / f"{steps}", scenario, steps, how):
        steps += 1
    assert steps > 5
