"""The words of a selector: JMS 2.0, 3.8.1.1, with positions for whoever has to be told where something is wrong."""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import NoReturn

from penstock.broker_core.errors import InvalidSelector

MAX_LENGTH = 4096  # characters of a selector; of qpid-jms' users none is known to need more than a few hundred
KEYWORDS = frozenset({"AND", "BETWEEN", "ESCAPE", "FALSE", "IN", "IS", "LIKE", "NOT", "NULL", "OR", "TRUE"})
MOST_EXACT = 2**63  # of a literal: only its negative fits 64 bits, which the parser checks

#: `quoted` is a name in double quotes, which JMS does not have: every broker lets one select by a property such as `order-id` so.
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
    """`kind`: keyword, operator (`text` is then canonical), identifier, quoted, string, number, end. `position` counts from 1."""

    kind: str
    text: str
    value: bool | int | float | str | None
    position: int

    @property
    def shown(self) -> str:
        return "the end" if self.kind == "end" else repr(self.text)


def tokens(text: str) -> list[Token]:
    """The words of `text`, the last one of kind `end`. Raises InvalidSelector."""
    if len(text) > MAX_LENGTH:
        raise InvalidSelector(f"the selector has {len(text)} characters, {MAX_LENGTH} are allowed", MAX_LENGTH + 1)
    found, place = [], 0
    while place < len(text):
        match = _TOKEN.match(text, place)
        if match is None or match.lastgroup is None:
            _unreadable(text, place)
        kind, word = match.lastgroup, match.group()
        if kind == "comment":
            wrong(place + 1, repr(word), "no comments (for a minus before a minus, put a space between them)")
        place = match.end()
        if kind != "space":
            found.append(_token(kind, word, match.start() + 1))
        if kind in ("exact", "approximate") and place < len(text) and _NAME_PART.match(text[place]):
            wrong(match.start() + 1, repr(word + text[place]), "a number, or a name that begins with a letter, '_' or '$'")
    return [*found, Token("end", "", None, len(text) + 1)]


def wrong(position: int, found: str, allowed: str) -> NoReturn:
    """Raise InvalidSelector: what was found at `position`, and what is allowed there."""
    raise InvalidSelector(f"the selector is wrong at character {position}: found {found}; allowed here: {allowed}", position)


def _unreadable(text: str, place: int) -> NoReturn:
    character = text[place]
    if character in "'\"":
        wrong(place + 1, "a quotation that does not end", f"text that ends with {character}; {character} itself is written twice")
    operators = "operators are = <> < <= > >= + - * /"
    wrong(place + 1, repr(character), f"names, numbers, strings in '…', parentheses; {operators}")


def _token(kind: str, word: str, position: int) -> Token:
    if kind == "identifier":
        upper = word.upper()
        if word.isascii() and upper in KEYWORDS:
            return Token("keyword", upper, None, position)
        return Token("identifier", word, word, position)
    if kind == "string":
        return Token(kind, word, word[1:-1].replace("''", "'"), position)
    if kind == "quoted":
        return Token(kind, word, word[1:-1].replace('""', '"'), position)
    if kind == "exact":
        return Token("number", word, _exact(word, position), position)
    if kind == "approximate":
        return Token("number", word, _approximate(word, position), position)
    return Token(kind, word, None, position)


def _exact(word: str, position: int) -> int:
    """Java's integer literals: decimal, octal with a leading 0, hexadecimal; all as 64 bits, whether there is an L or not."""
    digits = word.rstrip("lL")
    try:
        value = int(digits, 16) if digits[:2] in ("0x", "0X") else int(digits, 8 if digits[0] == "0" else 10)
    except ValueError:
        wrong(position, repr(word), "octal digits 0 to 7 after a leading 0")
    if value > MOST_EXACT:
        wrong(position, repr(word), "exact numbers of 64 bits; larger ones as approximate numbers, such as 1.0E20")
    return value


def _approximate(word: str, position: int) -> float:
    """Java's floating-point literals. With an F the nearest float: what a property of that type is compared with."""
    value = float(word.rstrip("fFdD"))
    if word[-1] in "fF":
        try:
            value = float(struct.unpack("f", struct.pack("f", value))[0])
        except OverflowError:
            value = float("inf")
    if value == float("inf"):
        wrong(position, repr(word), "approximate numbers up to 1.7976931348623157E308 (with an F up to 3.4028235E38)")
    return value
