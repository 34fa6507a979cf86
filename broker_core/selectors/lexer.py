"""Tokens of a selector (JMS 2.0, 3.8.1.1), with positions for error messages."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import NoReturn

from ..errors import InvalidSelector

MAX_LENGTH = 4096  # characters; selectors in use have a few hundred
KEYWORDS = frozenset({"AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"})
MOST_EXACT = 2**63  # largest literal: the parser checks that a minus precedes it

#: `quoted` is a name in double quotes. JMS does not have it; brokers do, for a property such as `order-id`.
_TOKEN = re.compile(
    r"""
    (?P<space>[ \t\n\r\f]+)
    | (?P<comment>--|/\*)
    | (?P<approximate>(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?[fFdD]?|[0-9]+(?:[eE][+-]?[0-9]+[fFdD]?|[fFdD]))
    | (?P<exact>0[xX][0-9a-fA-F]+[lL]?|[0-9]+[lL]?)
    | (?P<string>'(?:[^']|'')*')
    | (?P<quoted>"(?:[^"]|"")+")
    | (?P<identifier>(?:[^\W\d]|\$)[\w$]*(?:\.[\w$]+)*)
    | (?P<operator><>|<=|>=|[<>=(),+\-*/])
    """,
    re.VERBOSE,
)
_NAME_PART = re.compile(r"[\w$.]")


@dataclass(frozen=True)
class Token:
    """`position` counts from 1. `kind`: keyword (`text` is canonical), operator, identifier, quoted, string, number, end."""

    kind: str
    text: str
    value: bool | int | float | str | None
    position: int

    @property
    def described(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)


def tokens(text: str) -> list[Token]:
    """The last token is of kind `end`."""
    if len(text) > MAX_LENGTH:
        raise InvalidSelector(f"the selector has {len(text)} characters; at most {MAX_LENGTH} are allowed", MAX_LENGTH + 1)
    result, index = [], 0
    while index < len(text):
        match = _TOKEN.match(text, index)
        if match is None or match.lastgroup is None:
            _unreadable(text, index)
        kind, word = match.lastgroup, match.group()
        if kind == "comment":
            wrong(index + 1, repr(word), "no comments (for a minus before a minus, put a space between them)")
        index = match.end()
        if kind != "space":
            result.append(_token(kind, word, match.start() + 1))
        if kind in ("exact", "approximate") and index < len(text) and _NAME_PART.match(text[index]):
            wrong(match.start() + 1, repr(word + text[index]), "a number, or a name that begins with a letter, '_' or '$'")
    return [*result, Token("end", "", None, len(text) + 1)]


def is_blank(text: str) -> bool:
    return not text.strip(" \t\n\r\f")


def wrong(position: int, actual: str, allowed: str) -> NoReturn:
    """Raise InvalidSelector for `actual` at `position`, where `allowed` is possible."""
    raise InvalidSelector(f"the selector is wrong at character {position}: found {actual}; allowed here: {allowed}", position)


def _unreadable(text: str, index: int) -> NoReturn:
    character = text[index]
    if character in "'\"":
        wrong(index + 1, "a quotation that does not end", f"text that ends with {character}; {character} itself is written twice")
    operators = "operators are = <> < <= > >= + - * /"
    wrong(index + 1, repr(character), f"names, numbers, strings in '…', parentheses; {operators}")


def _token(kind: str, word: str, position: int) -> Token:
    if kind == "identifier":
        upper = word.upper()
        if word.isascii() and upper in KEYWORDS:
            return Token("keyword", upper, None, position)
        return Token("identifier", word, word, position)
    if kind in ("string", "quoted"):
        return Token(kind, word, word[1:-1].replace(2 * word[0], word[0]), position)
    if kind in ("exact", "approximate"):
        return Token("number", word, (_exact if kind == "exact" else _approximate)(word, position), position)
    return Token(kind, word, None, position)


def _exact(word: str, position: int) -> int:
    """Parse Java's integer literals: decimal, octal with a leading 0, hexadecimal; 64 bits even without an L."""
    digits = word.rstrip("lL")
    try:
        value = int(digits, 16) if digits[:2] in ("0x", "0X") else int(digits, 8 if digits[0] == "0" else 10)
    except ValueError:
        wrong(position, repr(word), "octal digits 0 to 7 after a leading 0")
    if value > MOST_EXACT:
        wrong(position, repr(word), "exact numbers of 64 bits; larger ones as approximate numbers, such as 1.0E20")
    return value


def _approximate(word: str, position: int) -> float:
    """Parse Java's floating-point literals. With an F it is the nearest float."""
    value = float(word.rstrip("fFdD"))
    if word[-1] in "fF":
        try:
            value = float(struct.unpack("f", struct.pack("f", value))[0])
        except OverflowError:
            value = float("inf")
    if value == float("inf"):
        wrong(position, repr(word), "approximate numbers up to 1.7976931348623157E308 (with an F up to 3.4028235E38)")
    return value
