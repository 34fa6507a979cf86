"""Bodies of requests, and their limits."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from . import replies

MAX_BODY_BYTES = 1 << 20  # of a user's request, as on the other planes
MAX_STRANGER_BODY_BYTES = 16 << 10  # before a login: the longest password in JSON's escapes has 12 KiB


async def read(request: Request, *, is_user: bool) -> bytes:
    """The body must be JSON, which a form of a foreign page cannot send."""
    most = MAX_BODY_BYTES if is_user else MAX_STRANGER_BODY_BYTES
    length = request.headers.get("content-length", "0")
    if len(length) > 20 or int(length) > most:
        raise replies.RequestRefused(_too_large(is_user))
    pieces, size = [], 0  # joined at the end: a growing bytearray would fragment memory
    async for piece in request.stream():
        pieces.append(piece)
        size += len(piece)
        if size > most:
            raise replies.RequestRefused(_too_large(is_user))
        if not request.state.connection.hold_body(size):
            busy = "too many large requests are under way: try again"
            raise replies.RequestRefused(replies.error(503, "BUSY", busy, {"retry-after": "1"}))
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if size and kind != "application/json":
        raise replies.RequestRefused(replies.error(415, "NOT_JSON", "a request's content-type must be application/json"))
    return b"".join(pieces)


def _too_large(is_user: bool) -> Response:
    text = f"a request has at most {MAX_BODY_BYTES:,} bytes"
    if not is_user:
        text = f"before a login a request has at most {MAX_STRANGER_BODY_BYTES:,} bytes: send a valid Authorization header"
    return replies.error(413, "TOO_LARGE", text)
