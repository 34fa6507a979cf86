"""RabbitMQ's patterns of names, regular expressions, as Penstock's patterns, with `*` for any text."""

from __future__ import annotations

MAX_PATTERNS = 64  # of one expression, with its alternatives written out
MAX_DEPTH = 16  # of groups


def patterns_of(expression: str) -> list[str] | None:
    """Return patterns that match the same names; None if no patterns do.

    An empty expression matches no name, as in RabbitMQ. Without `^` and `$` an expression matches a part of a name.
    """
    if expression in ("", "^$"):
        return []
    alternatives = _ExpressionParser(expression).alternatives()
    if alternatives is None:
        return None
    return list(dict.fromkeys(alternatives))


class _ExpressionParser:
    """Literals, `.*`, alternatives and groups. Methods return None for another syntax."""

    def __init__(self, text: str) -> None:
        self._text, self._at = text, 0

    def alternatives(self) -> list[str] | None:
        patterns = self._choice(0)
        return patterns if self._at == len(self._text) else None

    def _choice(self, depth: int) -> list[str] | None:
        result: list[str] = []
        while True:
            patterns = self._sequence(depth)
            if patterns is None or len(result) + len(patterns) > MAX_PATTERNS:
                return None
            result += patterns
            if self._peek() != "|":
                return result
            self._at += 1

    def _sequence(self, depth: int) -> list[str] | None:
        top = depth == 0
        has_begin = top and self._take("^")
        patterns, has_end = [""], False
        while self._peek() not in ("", "|", ")"):
            if top and self._peek() == "$":
                self._at += 1
                has_end = True
                break
            items = self._item(depth)
            if items is None or len(items) * len(patterns) > MAX_PATTERNS:
                return None
            patterns = [before + after for before in patterns for after in items]
        if top:
            patterns = [("" if has_begin else "*") + pattern + ("" if has_end else "*") for pattern in patterns]
        return [_collapsed(pattern) for pattern in patterns]

    def _item(self, depth: int) -> list[str] | None:
        letter, self._at = self._text[self._at], self._at + 1
        if letter == "(":
            self._take("?:")
            items = self._choice(depth + 1) if depth < MAX_DEPTH and self._peek() != "?" else None
            if items is None or not self._take(")"):
                return None
        elif letter == ".":
            if not self._take("*"):
                return None
            items = ["*"]
        elif letter == "\\":
            letter, self._at = self._peek(), self._at + 1
            if not letter or letter.isalnum() or letter == "*":
                return None
            items = [letter]
        elif letter in "^$*+?{}[]":
            return None
        else:
            items = [letter]
        return None if self._peek() and self._peek() in "*+?{" else items

    def _peek(self) -> str:
        return self._text[self._at : self._at + 1]

    def _take(self, text: str) -> bool:
        taken = self._text.startswith(text, self._at)
        self._at += len(text) * taken
        return taken


def _collapsed(pattern: str) -> str:
    while "**" in pattern:
        pattern = pattern.replace("**", "*")
    return pattern
