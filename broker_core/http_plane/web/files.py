"""The files of the page, read once: requests never reach the file system."""

from __future__ import annotations

import hashlib
from pathlib import Path

from starlette.requests import Request
from starlette.responses import Response

from . import replies

TYPES = {
    ".html": "text/html; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
    ".png": "image/png",
}


class Files:
    """Files below `folder`."""

    def __init__(self, folder: Path) -> None:
        self._files = {}
        for path in folder.rglob("*"):
            if path.suffix in TYPES and path.is_file():
                content = path.read_bytes()
                tag = f'"{hashlib.sha256(content).hexdigest()[:32]}"'
                self._files[path.relative_to(folder).as_posix()] = content, TYPES[path.suffix], tag

    async def reply(self, request: Request) -> Response:
        file = self._files.get(request.path_params.get("name") or "index.html")
        if file is None:
            return replies.error(404, "NOT_FOUND", "the file does not exist")
        content, media_type, tag = file
        headers = {"etag": tag, "cache-control": "no-cache"}
        if tag in request.headers.get("if-none-match", ""):
            return Response(status_code=304, headers=headers)
        return Response(content, headers=headers, media_type=media_type)
