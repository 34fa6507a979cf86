"""Replies in JSON, as the broker's own are."""

from __future__ import annotations

from collections.abc import Mapping

from starlette.responses import JSONResponse, Response


def error(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> Response:
    """Make the answer that says what is wrong, and what to do."""
    return JSONResponse({"error": {"code": code, "message": message}}, status, headers)


def json(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """Make an answer of JSON that the broker has written."""
    return Response(body, status, headers, "application/json")
