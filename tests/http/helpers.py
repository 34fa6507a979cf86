"""An HTTP client that sends requests unchanged: browsers and libraries would correct them."""

from __future__ import annotations

import base64
import http.client
import json
from typing import Any, NamedTuple
from urllib.parse import urlsplit


class Answer(NamedTuple):
    status: int
    headers: dict[str, str]  # with names in small letters
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def code(self) -> str:
        """Code of an error."""
        return str(self.json["error"]["code"])


class Http:
    """One client, with a connection for each request. `headers` go with all of them."""

    def __init__(self, url: str, **headers: str) -> None:
        parts = urlsplit(url)
        assert parts.port is not None
        self.host, self.port = parts.hostname or "", parts.port
        self.headers = headers

    def ask(self, method: str, path: str, body: bytes | None = None, **headers: str) -> Answer:
        """A header `x_y` is sent as `x-y`; an empty one is left out."""
        merged = {**self.headers, **headers}
        connection = http.client.HTTPConnection(self.host, self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host="host" in merged, skip_accept_encoding=True)
            for name, value in merged.items():
                if value:
                    connection.putheader(name.replace("_", "-"), value)
            if body is not None:
                connection.putheader("content-length", str(len(body)))
            connection.endheaders(body)
            answer = connection.getresponse()
            received = {name.lower(): value for name, value in answer.getheaders()}
            return Answer(answer.status, received, answer.read())
        finally:
            connection.close()

    def client_connection(self) -> http.client.HTTPConnection:
        """A connection that stays."""
        return http.client.HTTPConnection(self.host, self.port, timeout=60)

    def get(self, path: str, **headers: str) -> Answer:
        return self.ask("GET", path, **headers)

    def call(self, action: str, fields: dict[str, Any] | None = None, **headers: str) -> Answer:
        """An action of the API."""
        return self.post(f"/api/v1/{action}", fields or {}, **headers)

    def post(self, path: str, fields: Any, **headers: str) -> Answer:
        return self.ask("POST", path, json.dumps(fields).encode(), **{"content_type": "application/json", **headers})


def basic(user: str, password: str = "secret") -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def cookie_of(answer: Answer) -> str:
    """Cookie of an answer, as a browser sends it back."""
    return answer.headers["set-cookie"].partition(";")[0]
