"""Runs a client program that asks its own questions: it prints a line of JSON for each, with the name and the fault."""

from __future__ import annotations

import json
import subprocess

#: Limit of all questions of a program, seconds. They take ten.
LIMIT_S = 300


def faults(command: list[str], *arguments: str) -> dict[str, str | None]:
    """The fault that each question found, or None."""
    done = subprocess.run(
        [*command, *arguments], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=LIMIT_S, check=False
    )
    assert done.returncode == 0, done.stderr
    answers = map(json.loads, done.stdout.splitlines())
    return {answer["question"]: answer["error"] for answer in answers}
