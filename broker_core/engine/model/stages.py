"""Names of stages, and of the writes that they belong to.

A write is one `df.write` or one micro-batch. Each attempt of a task has its own stage. A publish names the attempts that count,
and discards the others. Other clients use single stages: a write with one stage of the same name.
"""

from __future__ import annotations

from ...errors import InvalidRequest
from .names import check_name
from .transaction import is_transactional

_ATTEMPT = "\0"  # between write and attempt; not allowed in names


def attempt_name(write: str, attempt: int) -> str:
    return f"{write}{_ATTEMPT}{attempt}"


def write_of(stage: str) -> str:
    """A transaction's stage is a write of its own."""
    return stage if is_transactional(stage) else stage.partition(_ATTEMPT)[0]


def is_attempt(stage: str) -> bool:
    return _ATTEMPT in stage and not is_transactional(stage)


def check_stage(stage: str) -> None:
    write, separator, attempt = stage.partition(_ATTEMPT)
    check_name("stage", write)
    if separator and not attempt.isdecimal():
        raise InvalidRequest(f"stage: the attempt of a write is a number, not {attempt!r:.80}")
