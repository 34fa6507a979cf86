"""Hostile octets over real sockets, on every kind of listener (W5).

The broker stays up, keeps its memory limits, raises only expected errors, and another client continues to send and receive.
Seconds here, minutes with `./dev fuzz`. A failure names its seed and round; tests/amqp/test_fuzz.py explains how to set them.
"""

from __future__ import annotations

import contextlib
import itertools
import random
import re
import select
import socket
import struct
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from penstock import Broker
from penstock.broker_core.amqp import Message, decode_message
from penstock.broker_core.amqp.frames import encode_frame, protocol_header
from penstock.broker_core.amqp.performatives import Close, Open
from penstock.broker_core.client.amqp import connect

from ..amqp.test_fuzz import ROUNDS, SEED, a_conversation, mutate
from .talk import AUTHORITY, Client, Inside, PlainClient, TlsClient, WebSocketClient

PATIENCE_S = 30.0  # for expected frames, on the slowest machine
LOGIN_TIMEOUT_S = 1.0
FRAME = 64 * 1024
MIB = 1 << 20
#: Over a warm broker, after each test: allocators keep some memory (6 MiB were seen).
GROWTH = 24 * MIB
#: Of a connection that holds half a frame: the frame, a copy while it grows, and the memory of an idle connection.
HELD = 2 * FRAME + 100 * 1024

KINDS = {
    "plain": PlainClient,
    "tls": TlsClient,
    "websocket": WebSocketClient,
    "tls, websocket": lambda: Inside(TlsClient(), WebSocketClient()),
}
every_kind = pytest.mark.parametrize("kind", KINDS)


class Bystander(threading.Thread):
    """Sends three messages, receives and accepts them, repeatedly. `failure`: the error that ended it."""

    def __init__(self, url: str) -> None:
        super().__init__(name="bystander", daemon=True)
        self._url = url
        self._over = threading.Event()
        self._turned = threading.Condition()
        self.rounds = 0
        self.failure: BaseException | None = None

    def run(self) -> None:
        try:
            with connect(self._url) as connection:
                sender, receiver = connection.sender("bystander"), connection.receiver("bystander", credit=10)
                while not self._over.wait(0.005):
                    texts = [b"%d.%d" % (self.rounds, part) for part in range(3)]
                    sender.send([Message(data=[text]).encode() for text in texts])
                    sender.flush()
                    came = []
                    while len(came) < 3:
                        came += receiver.receive(3 - len(came), timeout_s=PATIENCE_S)
                    assert [decode_message(delivery.payload).data for delivery in came] == [[text] for text in texts]
                    receiver.accept(came)
                    with self._turned:
                        self.rounds += 1
                        self._turned.notify_all()
        except BaseException as error:
            self.failure = error

    def served(self, since: int) -> None:
        """Fail unless it has continued since then, and continues now."""
        with self._turned:
            goal = self.rounds + 2
            self._turned.wait_for(lambda: self.rounds >= goal or self.failure is not None, PATIENCE_S)
        assert self.failure is None
        assert self.rounds >= max(goal, since + 2)

    def stop(self) -> None:
        self._over.set()
        self.join(PATIENCE_S)


class Scene:
    """A broker with a listener of each kind, and the bystander."""

    def __init__(self, folder: Path) -> None:
        leaf = AUTHORITY.issue_cert("localhost")
        leaf.private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
        self.broker = Broker(
            folder / "data",
            fsync="never",
            amqp_login_timeout_s=LOGIN_TIMEOUT_S,
            tls_cert_file=folder / "both.pem",
            tls_key_file=folder / "both.pem",
            listeners=[
                {
                    "port": 0,
                    "tls": "tls" in kind,
                    "websocket": "websocket" in kind,
                    "mechanisms": ["SCRAM-SHA-256", "PLAIN", "ANONYMOUS"],
                    "without_sasl": True,
                }
                for kind in KINDS
            ],
        )
        self.broker.start()
        for queue in ("q", "a", "bystander"):
            self.broker.declare(queue)
        self.addresses: dict[str, tuple[str, int]] = {}
        for (_, host, port), kind in zip(re.findall(r"(amqps?|wss?)://([\d.]+):(\d+)", self.broker.log()), KINDS, strict=True):
            self.addresses[kind] = (host, int(port))
        self.bystander = Bystander(self.broker.amqp_url)
        self.bystander.start()

    def connect(self, kind: str) -> socket.socket:
        side = socket.create_connection(self.addresses[kind], PATIENCE_S)
        side.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return side

    def close(self) -> None:
        self.bystander.stop()
        self.broker.stop()

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Check the promise around a block."""
        before, logged = self.bystander.rounds, len(self.broker.log())
        self.bystander.served(before)
        memory = self.resident()
        yield
        assert self.broker.running
        self.bystander.served(before)
        assert self.resident() - memory < GROWTH
        log = self.broker.log()[logged:]
        assert "Traceback" not in log, log[log.index("Traceback") :][:3000]

    def resident(self) -> int:
        """Return the bytes of the broker's own memory; 0 without /proc."""
        with contextlib.suppress(FileNotFoundError):
            for line in Path(f"/proc/{self.broker.pid}/status").read_text().splitlines():
                if line.startswith("RssAnon"):
                    return int(line.split()[1]) * 1024
        return 0


@pytest.fixture(scope="module")
def scene(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    scene = Scene(tmp_path_factory.mktemp("fuzz"))
    try:
        yield scene
    finally:
        scene.close()


class Attacker:
    """One connection that sends given bytes and may be cut off. With `cut`, it sends byte by byte."""

    def __init__(self, scene: Scene, kind: str, source: random.Random, *, cut: bool = False) -> None:
        self.side = scene.connect(kind)
        self.client: Client = KINDS[kind]()
        self._source, self._cut, self._mutates = source, cut, False
        self.gone = False
        self.confused = False  # mutated octets are not the state of this client, so it continues without layers
        self.heard = b""

    def go_wrong(self) -> None:
        """Mutate the output of the layers from now on."""
        self._mutates = True

    def open_layers(self) -> None:
        """Open TLS and WebSocket correctly."""
        self.flush()
        while not self.client.ready and not self.gone:
            self.hear(PATIENCE_S)
            self.flush()

    def say(self, piece: bytes) -> None:
        try:
            if not self.confused:
                self.client.say(piece)
        except Exception:
            self._lose_the_thread()
        if self.confused:
            self.send(piece)
        self.flush()

    def _lose_the_thread(self) -> None:
        assert self._mutates, "a correct client was not understood"
        self.confused = True

    def flush(self) -> None:
        while data := self.client.data_to_send():  # input that arrives while sending may need an answer
            self.send(mutate(self._source, data) if self._mutates and self._source.random() < 0.3 else data)

    def send(self, data: bytes) -> None:
        """Send octets on the socket itself. The broker's output is read meanwhile, so that neither side waits for the other."""
        step = 1 if self._cut else max(1, len(data))
        try:
            for at in range(0, len(data), step):
                if self.gone:
                    return
                self.side.sendall(data[at : at + step])
                if at % 64 == 0:
                    self.hear(0)
            self.hear(0)
        except OSError:
            self.gone = True

    def hear(self, patience: float) -> None:
        if self.gone or not select.select([self.side], [], [], patience)[0]:
            return
        try:
            data = self.side.recv(65536)
        except OSError:
            data = b""
        if not data:
            self.gone = True
            return
        try:
            if not self.confused:
                self.heard += self.client.hear(data)
        except Exception:
            self._lose_the_thread()

    def end(self) -> None:
        """Wait until the broker ends the connection."""
        with contextlib.suppress(OSError):
            self.side.shutdown(socket.SHUT_WR)
            while self.side.recv(65536):
                pass
        self.side.close()

    def vanish(self) -> None:
        """End the connection with a reset."""
        self.side.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        self.side.close()

    def leave(self) -> None:
        (self.end if self._source.random() < 0.7 else self.vanish)()


def transcripts() -> list[list[bytes]]:
    """Pieces of complete frames in the golden transcripts of the protocol."""
    folder = Path(__file__).parent.parent / "amqp" / "transcripts"
    talks = []
    for path in sorted(folder.glob("*.txt")):
        lines = path.read_text().splitlines()
        hexed = [after for line, after in itertools.pairwise(lines) if line.startswith("-> ")]
        talks.append([bytes.fromhex(line.replace(" ", "")) for line in hexed if "…" not in line])
    return talks


TALKS = transcripts()


def test_there_are_talks_to_mutate() -> None:
    assert len(TALKS) > 50
    assert sum(talk[0].startswith(b"AMQP") for talk in TALKS) > 50


@every_kind
def test_garbage_before_the_header_is_answered_and_ended(scene: Scene, kind: str) -> None:
    with scene.watched():
        for number in range(10 * ROUNDS):
            source = random.Random(SEED + number)
            garbage = source.choice([b"", b"AMQ", b"GET / HTTP/1.1\r\n\r\n", b"\x16\x03\x01"])
            garbage += source.randbytes(source.choice([9, 50, 5000]))
            bare = Attacker(scene, kind, source, cut=source.random() < 0.2)  # below TLS and WebSocket
            bare.go_wrong()
            bare.send(garbage)
            bare.end()
            inside = Attacker(scene, kind, source)
            inside.open_layers()
            inside.say(garbage)
            while not inside.gone:
                inside.hear(PATIENCE_S)
            assert inside.heard[:4] == b"AMQP", f"seed {SEED}, round {number}"
            inside.side.close()


@every_kind
def test_mutated_talks_harm_nobody(scene: Scene, kind: str) -> None:
    with scene.watched():
        for number in range(50 * ROUNDS):
            source = random.Random(SEED + number)
            pieces = list(source.choice(TALKS) if source.random() < 0.7 else a_conversation(source))
            for _ in range(source.randrange(3)):
                at = source.randrange(len(pieces))
                pieces[at] = mutate(source, pieces[at])
            if source.random() < 0.4:
                pieces = [b"".join(pieces)]
            attacker = Attacker(scene, kind, source, cut=source.random() < 0.3)
            attacker.open_layers()
            for piece in pieces:
                attacker.say(piece)
            attacker.leave()


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "plain"])
def test_mutated_layers_harm_nobody(scene: Scene, kind: str) -> None:
    """The octets of TLS and WebSocket themselves, in the handshake and after it."""
    with scene.watched():
        for number in range(30 * ROUNDS):
            source = random.Random(SEED + number)
            attacker = Attacker(scene, kind, source, cut=source.random() < 0.2)
            if source.random() < 0.7:
                attacker.open_layers()
            attacker.go_wrong()
            for piece in source.choice(TALKS):
                attacker.say(piece)
            attacker.leave()


@every_kind
def test_half_a_frame_for_ever_is_ended_before_login_and_bounded_after(scene: Scene, kind: str) -> None:
    """Peers that have not opened are cut off in time; one that has keeps one frame at most."""
    half = encode_frame(0, Open(container_id="x" * 400).encode())[:-1]
    with scene.watched():
        silent = [Attacker(scene, kind, random.Random(0)) for _ in range(20)]
        for number, attacker in enumerate(silent):
            if number % 2:
                attacker.open_layers()
                attacker.say((protocol_header(0) + half)[: number * 20])
        for attacker in silent:
            while not attacker.gone:
                attacker.hear(PATIENCE_S)
            attacker.side.close()
        attackers, memory = [], scene.resident()
        for number in range(100):
            attacker = Attacker(scene, kind, random.Random(number))
            attacker.open_layers()
            attacker.say(protocol_header(0) + encode_frame(0, Open(container_id=f"half {number}").encode()))
            attacker.say(struct.pack(">IBBH", FRAME, 2, 0, 0) + bytes(FRAME - 100))
            attackers.append(attacker)
        scene.bystander.served(scene.bystander.rounds)
        assert scene.resident() - memory < len(attackers) * HELD
        for attacker in attackers:
            assert not attacker.gone
            attacker.vanish()


@every_kind
def test_a_frame_that_is_too_large_is_refused_by_its_head(scene: Scene, kind: str) -> None:
    with scene.watched():
        for size in (FRAME + 1, 1 << 31, (1 << 32) - 1, 7, 0):
            attacker = Attacker(scene, kind, random.Random(0))
            attacker.open_layers()
            attacker.say(protocol_header(0) + encode_frame(0, Open(container_id="large").encode()))
            attacker.say(struct.pack(">IBBH", size, 2, 0, 0))
            while not attacker.gone:
                attacker.hear(PATIENCE_S)
            assert b"amqp:connection:framing-error" in attacker.heard, size
            attacker.side.close()


@every_kind
def test_a_client_that_leaves_at_each_step_takes_nothing_along(scene: Scene, kind: str) -> None:
    with scene.watched():
        for talk in TALKS[:: max(1, 12 // ROUNDS)]:
            for steps in range(len(talk) + 1):
                attacker = Attacker(scene, kind, random.Random(steps))
                attacker.open_layers()
                for piece in talk[:steps]:
                    attacker.say(piece)
                attacker.vanish()


@every_kind
def test_after_all_that_a_connection_is_as_good_as_the_first(scene: Scene, kind: str) -> None:
    with scene.watched():
        attacker = Attacker(scene, kind, random.Random(0))
        attacker.open_layers()
        attacker.say(protocol_header(0) + encode_frame(0, Open(container_id="polite").encode()))
        attacker.say(encode_frame(0, Close().encode()))
        while not attacker.gone:
            attacker.hear(PATIENCE_S)
        assert b"Penstock" in attacker.heard
        assert attacker.heard.endswith(encode_frame(0, Close().encode()))
        attacker.side.close()
