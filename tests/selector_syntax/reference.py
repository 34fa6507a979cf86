"""Reference evaluation of a selector in plain Python: three truth values, one message, one node at a time.

A message is a dict from identifiers to Python values; None is NULL. `Loose` is text from a DataFrame, which also counts as the
number or boolean that it shows. Values other than bool, int, float and str have no type.
"""

from __future__ import annotations

import operator
import re
from typing import Any

from penstock.broker_core.selectors import syntax

COMPARE = {"=": operator.eq, "<>": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
NUMERAL = re.compile(r"-?([0-9]{1,30}(\.[0-9]{0,30})?|\.[0-9]{1,30})([eE][+-]?[0-9]{1,2})?")


class Loose(str):
    pass


def condition(node: Any, message: dict[Any, Any]) -> bool | None:
    """True, False, or None for unknown."""
    if isinstance(node, syntax.Logic):
        found = [condition(term, message) for term in node.terms]
        decisive = node.operator == "OR"
        return decisive if decisive in found else None if None in found else not decisive
    if isinstance(node, syntax.Not):
        inside = condition(node.operand, message)
        return None if inside is None else not inside
    if isinstance(node, syntax.Comparison):
        return compare(node.operator, value(node.left, message), value(node.right, message))
    if isinstance(node, syntax.Between):
        low = syntax.Comparison("<" if node.negated else ">=", node.operand, node.low)
        high = syntax.Comparison(">" if node.negated else "<=", node.operand, node.high)
        return condition(syntax.Logic("OR" if node.negated else "AND", (low, high)), message)
    if isinstance(node, syntax.IsNull):
        return (message[node.operand] is None) != node.negated
    if isinstance(node, (syntax.In, syntax.Like)):
        text = message[node.operand]
        if not isinstance(text, str):
            return None if text is None else False
        found = text in node.values if isinstance(node, syntax.In) else like(text, node.pattern, node.escape)
        return found != node.negated
    return boolean(value(node, message))


def value(node: Any, message: dict[Any, Any]) -> Any:
    if isinstance(node, syntax.Literal):
        return node.value
    if isinstance(node, syntax.Identifier):
        return message[node]
    if isinstance(node, syntax.Negative):
        return calculate("-", 0, number(value(node.operand, message)))
    if isinstance(node, syntax.Arithmetic):
        return calculate(node.operator, number(value(node.left, message)), number(value(node.right, message)))
    return condition(node, message)


def compare(sign: str, left: Any, right: Any) -> bool | None:
    if left is None or right is None:
        return None
    order = sign not in ("=", "<>")
    if not order and isinstance(left, str) and isinstance(right, str):
        return COMPARE[sign](str(left), str(right))
    one, other = number(left), number(right)
    if one is not None and other is not None:
        if type(one) is not int or type(other) is not int:
            one, other = float(one), float(other)  # Python alone would compare them exactly
        return COMPARE[sign](one, other)
    yes, no = boolean(left), boolean(right)
    if not order and yes is not None and no is not None:
        return COMPARE[sign](yes, no)
    return False


def number(found: Any) -> int | float | None:
    if type(found) in (int, float):
        return found
    if not isinstance(found, Loose) or not NUMERAL.fullmatch(found):
        return None
    digits = found.lstrip("-")
    if digits.isdigit() and len(digits) <= 19 and -(2**63) <= int(found) < 2**63:
        return int(found)
    return float(found)


def boolean(found: Any) -> bool | None:
    if isinstance(found, bool):
        return found
    if isinstance(found, Loose) and re.fullmatch("true|false", found, re.IGNORECASE | re.ASCII):
        return len(found) == 4
    return None


def calculate(sign: str, left: Any, right: Any) -> int | float | None:
    if left is None or right is None:
        return None
    one, other = float(left), float(right)
    if sign == "/":
        return None if other == 0 else one / other
    found = one + other if sign == "+" else one - other if sign == "-" else one * other
    if type(left) is int and type(right) is int and abs(found) < 2.0**62:
        return left + right if sign == "+" else left - right if sign == "-" else left * right
    return found


def like(text: str, pattern: str, escape: str | None) -> bool:
    """By trying every end for every `%`: slow, and plainly right."""
    if not pattern:
        return not text
    head, rest = pattern[0], pattern[1:]
    if head == escape and rest and rest[0] in ("%", "_", escape):
        return text[:1] == rest[0] and like(text[1:], rest[1:], escape)
    if head == "%":
        return any(like(text[end:], rest, escape) for end in range(len(text) + 1))
    return bool(text) and head in ("_", text[0]) and like(text[1:], rest, escape)
