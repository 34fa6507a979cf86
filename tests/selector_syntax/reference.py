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
        results = [condition(term, message) for term in node.terms]
        decisive = node.operator == "OR"
        return decisive if decisive in results else None if None in results else not decisive
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
        matched = text in node.values if isinstance(node, syntax.In) else like(text, node.pattern, node.escape)
        return matched != node.negated
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
    left_number, right_number = number(left), number(right)
    if left_number is not None and right_number is not None:
        if type(left_number) is not int or type(right_number) is not int:
            left_number, right_number = float(left_number), float(right_number)  # Python alone would compare them exactly
        return COMPARE[sign](left_number, right_number)
    yes, no = boolean(left), boolean(right)
    if not order and yes is not None and no is not None:
        return COMPARE[sign](yes, no)
    return False


def number(operand: Any) -> int | float | None:
    if type(operand) in (int, float):
        return operand
    if not isinstance(operand, Loose) or not NUMERAL.fullmatch(operand):
        return None
    digits = operand.lstrip("-")
    if digits.isdigit() and len(digits) <= 19 and -(2**63) <= int(operand) < 2**63:
        return int(operand)
    return float(operand)


def boolean(operand: Any) -> bool | None:
    if isinstance(operand, bool):
        return operand
    if isinstance(operand, Loose) and re.fullmatch("true|false", operand, re.IGNORECASE | re.ASCII):
        return len(operand) == 4
    return None


def calculate(sign: str, left: Any, right: Any) -> int | float | None:
    if left is None or right is None:
        return None
    left_number, right_number = float(left), float(right)
    if sign == "/":
        return None if right_number == 0 else left_number / right_number
    result = (
        left_number + right_number if sign == "+" else left_number - right_number if sign == "-" else left_number * right_number
    )
    if type(left) is int and type(right) is int and abs(result) < 2.0**62:
        return left + right if sign == "+" else left - right if sign == "-" else left * right
    return result


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
