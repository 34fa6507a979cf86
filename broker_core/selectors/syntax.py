"""The syntax tree of a selector, and its canonical text, which parses to the same tree."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import ClassVar, TypeAlias

from .lexer import KEYWORDS
from .names import Identifier, Type, is_reserved


class _Number:
    type: ClassVar[Type] = "number"


class _Condition:
    type: ClassVar[Type] = "boolean"


@dataclass(frozen=True)
class Literal:
    """A number, string or boolean."""

    value: bool | int | float | str

    @property
    def type(self) -> Type:
        return "boolean" if isinstance(self.value, bool) else "string" if isinstance(self.value, str) else "number"


@dataclass(frozen=True)
class Negative(_Number):
    """A minus before an operand."""

    operand: Node


@dataclass(frozen=True)
class Arithmetic(_Number):
    """A calculation."""

    operator: str  # + - * /
    left: Node
    right: Node


@dataclass(frozen=True)
class Comparison(_Condition):
    """A comparison of two operands."""

    operator: str  # = <> < <= > >=
    left: Node
    right: Node


@dataclass(frozen=True)
class Between(_Condition):
    """BETWEEN or NOT BETWEEN."""

    operand: Node
    low: Node
    high: Node
    negated: bool


@dataclass(frozen=True)
class In(_Condition):
    """IN or NOT IN."""

    operand: Identifier
    values: tuple[str, ...]  # sorted, each once
    negated: bool


@dataclass(frozen=True)
class Like(_Condition):
    """LIKE or NOT LIKE."""

    operand: Identifier
    pattern: str
    escape: str | None
    negated: bool


@dataclass(frozen=True)
class IsNull(_Condition):
    """IS NULL or IS NOT NULL."""

    operand: Identifier
    negated: bool


@dataclass(frozen=True)
class Not(_Condition):
    """NOT before a condition."""

    operand: Node


@dataclass(frozen=True)
class Logic(_Condition):
    """AND or OR of two or more terms, none with the same operator."""

    operator: str
    terms: tuple[Node, ...]


Node: TypeAlias = "Literal | Identifier | Negative | Arithmetic | Comparison | Between | In | Like | IsNull | Not | Logic"


def children(node: Node) -> tuple[Node, ...]:
    if isinstance(node, (Arithmetic, Comparison)):
        return node.left, node.right
    if isinstance(node, Between):
        return node.operand, node.low, node.high
    if isinstance(node, Logic):
        return node.terms
    if isinstance(node, (Negative, In, Like, IsNull, Not)):
        return (node.operand,)
    return ()


def walk(node: Node) -> Iterator[tuple[Node, int]]:
    """Yield nodes with their depths, from 1. No recursion: an unchecked tree may be deep."""
    waiting = [(node, 1)]
    while waiting:
        current, depth = waiting.pop()
        yield current, depth
        waiting += [(child, depth + 1) for child in children(current)]


# --- The canonical text ----------------------------------------------------------------------------------------------------

# Precedence of operators. An operand that binds less tightly than its operator requires is in parentheses.
OR, AND, NOT, COMPARISON, SUM, PRODUCT, SIGN, ATOM = range(8)


def render(node: Node) -> str:
    return _text(node)[0]


def _text(node: Node) -> tuple[str, int]:
    if isinstance(node, Literal):
        return _literal(node.value)
    if isinstance(node, Identifier):
        return _identifier(node), ATOM
    if isinstance(node, Negative):
        return f"- {_part(node.operand, SIGN)}", SIGN
    if isinstance(node, Arithmetic):
        level = SUM if node.operator in "+-" else PRODUCT
        return f"{_part(node.left, level)} {node.operator} {_part(node.right, level + 1)}", level
    if isinstance(node, Logic):
        level = OR if node.operator == "OR" else AND
        return f" {node.operator} ".join(_part(term, level + 1) for term in node.terms), level
    if isinstance(node, Not):
        return f"NOT {_part(node.operand, NOT)}", NOT
    return _condition(node), COMPARISON


def _condition(node: Comparison | Between | In | Like | IsNull) -> str:
    if isinstance(node, Comparison):
        return f"{_part(node.left, SUM)} {node.operator} {_part(node.right, SUM)}"
    subject = _part(node.operand, SUM)
    negation = "NOT " if node.negated else ""
    if isinstance(node, Between):
        return f"{subject} {negation}BETWEEN {_part(node.low, SUM)} AND {_part(node.high, SUM)}"
    if isinstance(node, In):
        return f"{subject} {negation}IN ({', '.join(map(_quoted, node.values))})"
    if isinstance(node, Like):
        escape = "" if node.escape is None else f" ESCAPE {_quoted(node.escape)}"
        return f"{subject} {negation}LIKE {_quoted(node.pattern)}{escape}"
    return f"{subject} IS {negation}NULL"


def _part(node: Node, minimum: int) -> str:
    text, level = _text(node)
    return text if level >= minimum else f"({text})"


def _literal(value: bool | int | float | str) -> tuple[str, int]:
    if isinstance(value, bool):
        return ("TRUE" if value else "FALSE"), ATOM
    if isinstance(value, str):
        return _quoted(value), ATOM
    text = repr(value)
    return text, SIGN if text[0] == "-" else ATOM


def _quoted(text: str) -> str:
    return "'" + text.replace("'", "''") + "'"


_PLAIN = re.compile(r"(?:[^\W\d]|\$)[\w$]*(?:\.[\w$]+)*")


def _identifier(node: Identifier) -> str:
    name = node.name
    if node.field is not None:
        return name
    keyword = name.isascii() and name.upper() in KEYWORDS
    if _PLAIN.fullmatch(name) and not keyword and not is_reserved(name):
        return name
    return '"' + name.replace('"', '""') + '"'
