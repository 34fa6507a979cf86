"""Replies in the broker's form."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from starlette.responses import JSONResponse, Response
from starlette.types import Receive, Scope, Send


class RequestRefused(Exception):
    """A request that is not carried out."""

    def __init__(self, reply: Response) -> None:
        super().__init__(reply.status_code)
        self.reply = reply


class Parts(Response):
    """An answer in parts: to join and copy a large one takes longer than to render it."""

    def __init__(self, parts: Sequence[bytes], content_type: str) -> None:
        super().__init__(headers={"content-type": content_type, "content-length": str(sum(map(len, parts)))})
        self._parts = parts

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        for part in self._parts:
            await send({"type": "http.response.body", "body": part, "more_body": True})
        await send({"type": "http.response.body", "body": b""})


def error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers)


def json(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    return Response(body, status, headers, "application/json")
