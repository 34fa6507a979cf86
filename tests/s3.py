"""A real S3 server on loopback, VersityGW on a folder, and a proxy that simulates faults of a network."""

from __future__ import annotations

import os
import shutil
import socket
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from pathlib import Path

from .artemis import held_port
from .programs import Group
from .waiting import until

BUCKET = "penstock"
#: Answers of a store: one that fails, is busy, whose clock, or the client's, is off; credentials that have expired.
CODES = {"500": "InternalError", "503": "SlowDown", "403": "RequestTimeTooSkewed", "400": "ExpiredToken"}
ACCESS, SECRET = "penstock-test", "penstock-secret"


class S3Server:
    """VersityGW in a process of its own."""

    def __init__(self, command: list[str], folder: Path) -> None:
        self.folder = folder
        (folder / BUCKET).mkdir(parents=True)
        self.port = held_port(self)
        self._log = open(folder.parent / "versitygw.log", "wb")  # noqa: SIM115
        self._command = [*command, "--port", f"127.0.0.1:{self.port}", "posix", str(folder)]
        self.start()

    def start(self) -> None:
        """Start it, or start it again after `kill`, at the same port."""
        environment = {**os.environ, "ROOT_ACCESS_KEY": ACCESS, "ROOT_SECRET_KEY": SECRET}
        self._group = Group(self._command, env=environment, stdout=self._log, stderr=self._log)
        until(self._answers, "VersityGW answers")

    def _answers(self) -> bool:
        assert self._group.process.poll() is None, "VersityGW has ended"
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{self.port}/", timeout=5).close()
        except urllib.error.HTTPError:
            return True  # requests need a login
        except OSError:
            return False
        return True

    @property
    def pid(self) -> int:
        """Number of its process."""
        return self._group.process.pid

    def kill(self) -> None:
        """End it as by kill -9: its files stay."""
        self._group.kill()

    def delete_bucket(self) -> None:
        shutil.rmtree(self.folder / BUCKET)

    def make_bucket(self) -> None:
        (self.folder / BUCKET).mkdir()

    def close(self) -> None:
        self._group.kill()
        self._log.close()


def environment(port: int, secret: str = SECRET) -> dict[str, str]:
    """Return the environment of a client of that port."""
    return {
        "AWS_ENDPOINT_URL": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": ACCESS,
        "AWS_SECRET_ACCESS_KEY": secret,
        "AWS_REGION": "us-east-1",
        "AWS_EC2_METADATA_DISABLED": "true",
    }


class Proxy:
    """Proxy between a client and the server. `fault(method, path)` decides about a request: None forwards it;

    - one of `CODES`: that answer, without the server;
    - `cut`: the server gets half of the body, and the connection ends;
    - `lost`: the server gets all of it, and the client no answer;
    - `slow`: half a second later.
    """

    def __init__(self, target: int) -> None:
        self.fault: Callable[[str, str], str | None] = lambda method, path: None
        self.seen: list[tuple[str, str, str | None]] = []
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._listener.close()
        for sock in self._sockets:
            sock.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.append(client)
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        try:
            with client, client.makefile("rb") as incoming:
                while self._request(client, incoming):
                    pass
        except OSError:
            pass

    def _request(self, client: socket.socket, incoming) -> bool:  # type: ignore[no-untyped-def]
        head = b""
        while not head.endswith(b"\r\n\r\n"):
            line = incoming.readline()
            if not line:
                return False
            head += line
        method, path, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
        headers = {
            name.strip().lower(): value.strip()
            for name, _, value in (line.partition(":") for line in head.decode("latin-1").split("\r\n")[1:])
            if name
        }
        body = incoming.read(int(headers.get("content-length", 0)))
        fault = self.fault(method, path)
        self.seen.append((method, path, fault))
        if fault in CODES:
            text = b"<Error><Code>%s</Code><Message>injected</Message></Error>" % CODES[fault].encode()
            client.sendall(b"HTTP/1.1 %s Injected\r\nContent-Length: %d\r\n\r\n" % (fault.encode(), len(text)) + text)
            return True
        if fault == "slow":
            time.sleep(0.5)
        with socket.create_connection(("127.0.0.1", self._target)) as server:
            if fault == "cut":
                server.sendall(head + body[: len(body) // 2])
                return False
            server.sendall(head.replace(b"\r\n\r\n", b"\r\nConnection: close\r\n\r\n", 1) + body)
            answer = b""
            while data := server.recv(1 << 16):
                if fault == "lost":
                    answer += data
                else:
                    client.sendall(data)
        return False
