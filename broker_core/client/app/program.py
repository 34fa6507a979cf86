"""The default client id, by which people recognize a program in the archive and in lists."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

_INTERPRETER = "python"  # for a console, or `python -c`


def program_name() -> str:
    """Return a name such as `orders.py@host`, the same after each start. `python -m shop` is `shop@host`."""
    path = Path(sys.argv[0] if sys.argv else "")
    if path.name == "__main__.py":
        path = path.parent
    name = path.name if path.name not in ("", "-c", "-m") else _INTERPRETER
    return at_this_host(name)


def at_this_host(name: str) -> str:
    return f"{name}@{socket.gethostname()}".encode(errors="backslashreplace").decode()
