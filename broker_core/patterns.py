"""Patterns for names of queues and exchanges, as permissions and policies use them."""

from __future__ import annotations


def matches(pattern: str, name: str) -> bool:
    """Return True if `pattern` matches `name`; each `*` stands for any text, including none.

    Not a regular expression: the time is linear, whatever the pattern.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == name
    last = rest.pop()
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    position, stop = len(first), len(name) - len(last)
    for part in rest:  # the leftmost match of each part leaves the most for the next
        found = name.find(part, position, stop)
        if found < 0:
            return False
        position = found + len(part)
    return True
