"""Names of stages, and the writes that they belong to.

A write is one `df.write` or one micro-batch. Each attempt of each of its tasks has a stage of its own, named by the write and
the attempt's number; a publish names the attempts that count, and the others go with it. A stage by itself, which other clients
make, is a write with one stage of the same name.
"""

from __future__ import annotations

from ...errors import InvalidRequest
from .names import check_name
from .transaction import is_transactional

_ATTEMPT = "\0"  # between write and attempt: no name has it


def attempt_name(write: str, attempt: int) -> str:
    """Name the stage of one attempt of a write."""
    return f"{write}{_ATTEMPT}{attempt}"


def write_of(stage: str) -> str:
    """The write that a stage belongs to; a transaction's stage is by itself."""
    return stage if is_transactional(stage) else stage.partition(_ATTEMPT)[0]


def is_attempt(stage: str) -> bool:
    """Say whether a stage is of an attempt of a write."""
    return _ATTEMPT in stage and not is_transactional(stage)


def check_stage(stage: str) -> None:
    """Raise InvalidRequest unless it is a name, or a name and the number of an attempt."""
    write, found, attempt = stage.partition(_ATTEMPT)
    check_name("stage", write)
    if found and not attempt.isdecimal():
        raise InvalidRequest(f"stage: the attempt of a write is a number, not {attempt!r:.80}")
