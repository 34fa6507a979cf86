"""Audit entries of commands on a data directory, whose broker may run."""

from __future__ import annotations

import getpass
import os
import sys
import time
from pathlib import Path
from typing import Any

from ..security.audit import DONE, UNLIMITED, AuditEntry, AuditLog, Origin


def add(data: Path, action: str, name: str, outcome: str = DONE, error: str | None = None, **details: Any) -> None:
    """Write an entry of the operating system's user. A failure is a warning on stderr."""
    audit = AuditLog(data, lambda: UNLIMITED, lambda: time.time_ns() // 1_000_000, _warn)
    audit.add(
        AuditEntry(
            origin=Origin(_account(), "", "command line"),
            action=action,
            object=name,
            outcome=outcome,
            error=error,
            details={field: value for field, value in details.items() if value},
        )
    )
    audit.close()


def _warn(problem: str | None) -> None:
    if problem is not None:
        print(f"penstock: {problem}", file=sys.stderr)


def _account() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # an account without a name, as in a container
        return f"uid {os.getuid()}"
