"""Patterns for names of queues and exchanges, as permissions and policies use them."""

from __future__ import annotations


def matches(pattern: str, name: str) -> bool:
    """Return True if `pattern` matches `name`; each `*` stands for any text, including none. Takes linear time for every
    pattern."""
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == name
    last = rest.pop()
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    position, stop = len(first), len(name) - len(last)
    for part in rest:  # the leftmost match of each part leaves the most for the next
        index = name.find(part, position, stop)
        if index < 0:
            return False
        position = index + len(part)
    return True
