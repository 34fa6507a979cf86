"""W5, W6: peers that are slow, or use too much memory, are shed; other clients are served throughout.

Time-outs are short settings here. Every test waits for the end of a connection, and does not read a clock.
"""

from __future__ import annotations

import contextlib
import random
import resource
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock import Broker
from penstock.broker_core.amqp.frames import AMQP_ID, SASL_FRAME, SASL_ID, encode_frame, protocol_header
from penstock.broker_core.amqp.performatives import Open, SaslInit
from penstock.broker_core.client.amqp import connect
from penstock.broker_core.server import open_files

from .frames import begin, receives
from .test_fuzz_plane import FRAME, KINDS, MIB, PATIENCE_S, Attacker, Bystander, Scene

KIB = 1024
SILENT = 2000
#: Of a connection that has not logged in, in the broker: the memory of an idle one, independent of its input.
UNKNOWN = 100 * KIB

every_kind = pytest.mark.parametrize("kind", KINDS)


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 2 * SILENT + open_files.OTHERS:
        pytest.skip(f"needs {2 * SILENT + open_files.OTHERS} open files, and the hard limit is {hard}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (2 * SILENT + open_files.OTHERS, hard))
    made = Scene(tmp_path_factory.mktemp("shedding"))
    try:
        yield made
    finally:
        made.close()


class Peak(threading.Thread):
    """The most memory of its own that the broker has had meanwhile."""

    def __init__(self, scene: Scene) -> None:
        super().__init__(daemon=True)
        self._scene, self._over = scene, threading.Event()
        self.before = self.most = scene.resident()

    def run(self) -> None:
        while not self._over.wait(0.02):
            self.most = max(self.most, self._scene.resident())

    def __enter__(self) -> Peak:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self.join()

    @property
    def growth(self) -> int:
        return self.most - self.before


def ended(side: socket.socket) -> None:
    """Wait until the broker ends this connection, after any other frames."""
    side.settimeout(PATIENCE_S)
    with contextlib.suppress(ConnectionResetError):
        while side.recv(65536):
            pass
    side.close()


# ---- before the login

SASL, AMQP = protocol_header(SASL_ID), protocol_header(AMQP_ID)
HELLO = b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03"  # of TLS, 512 octets long
OPEN = encode_frame(0, Open(container_id="x" * 400).encode())
INIT = encode_frame(0, SaslInit(mechanism="PLAIN", initial_response=bytes(300)).encode(), frame_type=SASL_FRAME)
UNFINISHED = {
    "silence": b"",
    "half a header": AMQP[:5],
    "a header": AMQP,
    "half an open": AMQP + OPEN[:-1],
    "the header of SASL": SASL,
    "half a SASL frame": SASL + INIT[:-1],
    "SASL without an end": SASL + encode_frame(0, SaslInit(mechanism="PLAIN").encode(), frame_type=SASL_FRAME),
}


@every_kind
def test_who_does_not_get_as_far_as_an_open_is_shed(scene: Scene, kind: str) -> None:
    """Each of them together, with its octets in every combination of layers."""
    with scene.watched():
        attackers = []
        for opening in UNFINISHED.values():
            attacker = Attacker(scene, kind, random.Random(0))
            attacker.open_layers()
            attacker.say(opening)
            attackers.append(attacker)
        for attacker in attackers:
            ended(attacker.side)
        assert scene.broker.log().count("it did not log in") >= len(attackers)


@pytest.mark.parametrize("kind", ["tls", "websocket", "tls, websocket"])
@pytest.mark.parametrize("opening", [b"", HELLO, HELLO + bytes(300), b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_half_open_layers_are_shed(scene: Scene, kind: str, opening: bytes) -> None:
    with scene.watched():
        side = scene.connect(kind)
        side.sendall(opening)
        ended(side)


@every_kind
def test_a_handshake_octet_by_octet_gains_no_time(scene: Scene, kind: str) -> None:
    """The patience is counted from the connection, not from the last octet."""
    with scene.watched():
        client = KINDS[kind]()
        client.say(SASL + INIT)
        handshake = client.data_to_send() or bytes(400)
        side = scene.connect(kind)
        side.settimeout(0.02)
        sent = 0
        with contextlib.suppress(BrokenPipeError, ConnectionResetError):
            while sent < 10_000:
                side.sendall(handshake[sent % (len(handshake) - 1)].to_bytes(1, "big") if sent < len(handshake) - 1 else b"")
                sent += 1
                try:
                    if not side.recv(65536):
                        break
                except TimeoutError:
                    continue
        assert sent < 10_000, "it was never shed"
        side.close()


MOST = {
    "plain": [SASL + INIT[:-1], AMQP + struct.pack(">IBBH", 8192, 2, 0, 0) + bytes(8183)],
    "tls": [HELLO + bytes(505), struct.pack(">BHHBHB", 22, 0x0301, 16384, 1, 1, 0xFA) + bytes(16380)],
    "websocket": [b"GET / HTTP/1.1\r\n" + b"Cookie: " + b"x" * 8160],
}


@pytest.mark.parametrize("kind", MOST)
def test_memory_of_those_who_have_not_logged_in_is_bounded(scene: Scene, kind: str) -> None:
    """Each sends as much as it may, and as much again, which is not kept."""
    count = 400
    with scene.watched(), Peak(scene) as memory:
        sides = []
        for number in range(count):
            side = scene.connect(kind)
            with contextlib.suppress(OSError):
                side.sendall(MOST[kind][number % len(MOST[kind])])
            sides.append(side)
        for side in sides:
            with contextlib.suppress(OSError):
                side.sendall(bytes(20 * KIB))
        for side in sides:
            ended(side)
    print(f"{kind}: {memory.growth / count / KIB:.0f} KiB each")
    assert memory.growth < count * UNKNOWN


def test_two_thousand_connections_that_say_nothing_are_shed_while_a_client_works(scene: Scene) -> None:
    """W5: half of them at a listener with TLS. Together they may not cost more than 2,000 idle clients."""
    with scene.watched(), Peak(scene) as memory:
        sides = [scene.connect("tls" if number % 2 else "plain") for number in range(SILENT)]
        rounds = scene.bystander.rounds
        for side in sides:
            ended(side)
        scene.bystander.served(rounds)
    print(f"{memory.growth / MIB:.0f} MiB at most")
    assert memory.growth < SILENT * UNKNOWN


def test_more_silent_connections_than_there_may_be_keep_nobody_out_for_long(tmp_path: Path) -> None:
    """Silent connections take all places until they are shed; connected clients stay."""
    with Broker(tmp_path / "data", fsync="never", amqp_max_connections=50, amqp_login_timeout_s=1.0) as broker:
        broker.declare("bystander")
        bystander = Bystander(broker.amqp_url)
        bystander.start()
        bystander.served(0)
        host, _, port = broker.amqp_url.partition("://")[2].rpartition(":")
        sides = [socket.create_connection((host, int(port)), PATIENCE_S) for _ in range(300)]
        for side in sides:
            ended(side)
        with connect(broker.amqp_url) as again:
            again.sender("bystander")
        bystander.served(bystander.rounds)
        bystander.stop()
        assert bystander.failure is None


# ---- once it is in


def test_what_attaches_and_begins_say_is_not_kept(scene: Scene) -> None:
    """A frame may be full of an unsettled map; a thousand links could keep a thousand of them."""
    from penstock.broker_core.amqp.performatives import Attach

    unsettled: dict[bytes, Any] = {b"%04d" % number: None for number in range(6000)}
    links = 150
    with scene.watched():
        attacker = Attacker(scene, "plain", random.Random(0))
        attacker.say(AMQP + encode_frame(0, Open(container_id="greedy", max_frame_size=FRAME).encode()))
        attacker.say(encode_frame(0, begin().encode()))
        memory = 0
        for handle in range(2 * links):
            if handle == links:  # the first links have made the shared state
                memory = scene.resident()
            frame = receives("q", handle=handle, name=f"link {handle}", unsettled=unsettled)
            assert isinstance(frame, Attach)
            attacker.say(encode_frame(0, frame.encode()))
            while attacker.heard.count(b"\x00\x53\x12") <= handle and not attacker.gone:
                attacker.hear(PATIENCE_S)
        assert not attacker.gone
        grown = scene.resident() - memory
        print(f"{grown / links / KIB:.0f} KiB a link")
        assert grown < links * 64 * KIB
        attacker.vanish()
