"""Patterns of names of queues and exchanges, as permissions and policies have them."""

from __future__ import annotations


def matches(pattern: str, name: str) -> bool:
    """Whether `name` is one that `pattern` names; each `*` stands for any text, none included.

    Not a regular expression: its time is linear, whatever the pattern.
    """
    first, *rest = pattern.split("*")
    if not rest:
        return pattern == name
    last = rest.pop()
    if len(name) < len(first) + len(last) or not (name.startswith(first) and name.endswith(last)):
        return False
    place, stop = len(first), len(name) - len(last)
    for part in rest:  # the leftmost place of each is as good as any
        found = name.find(part, place, stop)
        if found < 0:
            return False
        place = found + len(part)
    return True
