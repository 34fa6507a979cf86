"""Patterns for names of queues and exchanges, in permissions and policies."""

from __future__ import annotations


def matches(pattern: str, name: str) -> bool:
    """Each `*` of the pattern stands for any text, including none. Takes linear time."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == name
    last = rest.pop()
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    position, stop = len(first), len(name) - len(last)
    for part in rest:  # the leftmost match leaves the most for the next part
        index = name.find(part, position, stop)
        if index < 0:
            return False
        position = index + len(part)
    return True
