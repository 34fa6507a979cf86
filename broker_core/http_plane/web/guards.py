"""Guards against foreign pages: their requests are refused, and they cannot use the answers.

- `Host` must be a name of this broker, or a numeric address. Otherwise a foreign page could point its own name here, and be of
  the same origin (DNS rebinding).
- A change from a page must come from our page (`Origin`, `Sec-Fetch-Site`).
- A request with a cookie must prove that its page can read our answers (`sessions`).
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable

from starlette.datastructures import Headers, MutableHeaders
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from . import replies
from .connections import DISCARDED_BYTES

SAFE = ("GET", "HEAD", "OPTIONS")
HEADERS = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; form-action 'self';"
        " frame-ancestors 'none'; base-uri 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
}


PIECE_BYTES = 32 << 10  # of an answer in one step: a slow client occupies no more


async def in_pieces(send: Send, message: Message) -> None:
    body = memoryview(message.get("body", b""))
    for start in range(0, len(body) - PIECE_BYTES, PIECE_BYTES):
        await send({**message, "body": bytes(body[start : start + PIECE_BYTES]), "more_body": True})
    last = max(0, -(-len(body) // PIECE_BYTES) - 1) * PIECE_BYTES
    await send({**message, "body": bytes(body[last:])} if last else message)


async def _drain(receive: Receive) -> None:
    read = 0
    while read <= DISCARDED_BYTES:
        message = await receive()
        read += len(message.get("body", b""))
        if not message.get("more_body"):
            break


class Guards:
    """Middleware. `names`: of this broker, besides localhost."""

    def __init__(self, application: ASGIApp, names: Iterable[str]) -> None:
        self._application = application
        self._names = {"localhost", *(name.lower() for name in names)}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
                headers.setdefault("cache-control", "no-store")
                if connection.must_drain:
                    await _drain(receive)
                if connection.must_close:
                    headers["connection"] = "close"
                connection.hold_answer(int(headers.get("content-length", 0)))
            await in_pieces(send, message)

        connection = scope["state"]["connection"]
        refusal = self._refusal(scope)
        await (refusal or self._application)(scope, receive, with_headers)

    def _refusal(self, scope: Scope) -> ASGIApp | None:
        headers = Headers(scope=scope)
        hosts = headers.getlist("host")
        if scope["path"].startswith("/health/"):  # a probe may use any name, and its answer has no secrets
            return None
        if len(hosts) != 1 or not self._is_ours(hosts[0]):
            return replies.error(
                421,
                "WRONG_HOST",
                f"this broker is not called {', '.join(hosts)!r:.100}: use its address, or set http_names to the names it has",
            )
        if scope["method"] in SAFE:
            return None
        origin = headers.get("origin")
        foreign = origin is not None and origin.partition("://")[2].lower() != hosts[0].lower()
        if foreign or headers.get("sec-fetch-site", "none") not in ("same-origin", "none"):
            return replies.error(403, "FOREIGN_ORIGIN", "a page of another origin made this request, so it was not carried out")
        return None

    def _is_ours(self, host: str) -> bool:
        name, closed, _ = host.partition("]")
        name = name.removeprefix("[") if closed else host.rpartition(":")[0] or host
        try:
            ipaddress.ip_address(name)
        except ValueError:
            return name.lower().rstrip(".") in self._names
        return True
