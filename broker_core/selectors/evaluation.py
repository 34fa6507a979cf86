"""Evaluation of a selector's tree on columns: a few vector operations for each node.

- A comparison with NULL is unknown. A comparison of different types is false, also with `<>`, NOT BETWEEN, NOT IN and NOT LIKE
  (only NOT before a condition inverts that).
- Exact numbers compare as 64-bit integers, others as doubles.
- Arithmetic of exact numbers is exact up to 2^62, otherwise a double. `/` always returns a double, as in other brokers.
  A division by zero, and arithmetic of other values than numbers, is NULL.
- A name alone is a condition: unknown unless it is a boolean.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import reduce
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from . import like_patterns, like_search, syntax
from .names import Identifier
from .operands import Operand, literal
from .syntax import Literal, Node
from .truth import NO, YES, Mask, Truth, conjunction, disjunction, negation
from .values import Booleans, NumericColumn, Texts, mask_of

Columns = Mapping[Identifier, Operand]

_EXACT = 2.0**62  # sums and products of exact numbers up to this limit are exact
_COMPARE: dict[str, Callable[[Any, Any], Any]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_CALCULATE: dict[str, Callable[[Any, Any], Any]] = {"+": operator.add, "-": operator.sub, "*": operator.mul}


def truth(node: Node, columns: Columns) -> Truth:
    if isinstance(node, syntax.Logic):
        return reduce(conjunction if node.operator == "AND" else disjunction, (truth(term, columns) for term in node.terms))
    if isinstance(node, syntax.Not):
        return negation(truth(node.operand, columns))
    if isinstance(node, syntax.Comparison):
        return _compared(node.operator, operand(node.left, columns), operand(node.right, columns))
    if isinstance(node, syntax.Between):
        return _between(node, columns)
    if isinstance(node, syntax.IsNull):
        null = columns[node.operand].null
        return Truth(~null if node.negated else null, NO)
    if isinstance(node, (syntax.In, syntax.Like)):
        return _of_text(node, columns[node.operand])
    booleans = operand(node, columns).as_booleans
    return Truth(NO, YES) if booleans is None else Truth(booleans.present & booleans.values, ~booleans.present)


def operand(node: Node, columns: Columns) -> Operand:
    if isinstance(node, Literal):
        return literal(node.value)
    if isinstance(node, Identifier):
        return columns[node]
    if isinstance(node, syntax.Negative):
        return _arithmetic("-", _ZERO, operand(node.operand, columns).as_numbers)
    if isinstance(node, syntax.Arithmetic):
        left, right = operand(node.left, columns), operand(node.right, columns)
        return _arithmetic(node.operator, left.as_numbers, right.as_numbers)
    condition = truth(node, columns)
    return Operand(condition.unknown, booleans=Booleans(~condition.unknown, condition.true))


# --- Comparisons -----------------------------------------------------------------------------------------------------------


def _compared(sign: str, left: Operand, right: Operand) -> Truth:
    unknown = left.null | right.null
    compare, holds = _COMPARE[sign], NO
    order = sign not in ("=", "<>")
    # Equality of two loose texts is that of texts; only an order depends on their numbers. A text is read as a number or boolean
    # only if the other side has that type.
    both_loose = left.loose and right.loose
    if (order and both_loose) or left.numbers is not None or right.numbers is not None:
        left_numbers, right_numbers = left.as_numbers, right.as_numbers
        if left_numbers is not None and right_numbers is not None:
            holds = holds | _compare_numbers(compare, left_numbers, right_numbers)
    if order:
        return Truth(holds & ~unknown, unknown)
    if left.texts is not None and right.texts is not None:
        holds = holds | _compare_texts(sign, left.texts, right.texts)
    if left.booleans is not None or right.booleans is not None:
        first, second = left.as_booleans, right.as_booleans
        if first is not None and second is not None:
            holds = holds | (first.present & second.present & compare(first.values, second.values))
    return Truth(holds & ~unknown, unknown)


def _compare_numbers(compare: Callable[[Any, Any], Any], left: NumericColumn, right: NumericColumn) -> Mask:
    present = left.present & right.present
    if left.floats is None and right.floats is None:
        return present & compare(left.ints, right.ints)
    holds = compare(left.as_floats(), right.as_floats())
    if left.ints is not None and right.ints is not None:
        holds = np.where(left.exact & right.exact, compare(left.ints, right.ints), holds)
    return present & holds


def _compare_texts(sign: str, left: Texts, right: Texts) -> Mask:
    present = left.present & right.present
    if left.literal is not None:
        equal = right.equal(left.literal)
    elif right.literal is not None:
        equal = left.equal(right.literal)
    else:
        equal = mask_of(pc.equal(left.array, right.array))
    return present & (equal if sign == "=" else ~equal)


def _between(node: syntax.Between, columns: Columns) -> Truth:
    value, low, high = (operand(part, columns) for part in (node.operand, node.low, node.high))
    if node.negated:
        return disjunction(_compared("<", value, low), _compared(">", value, high))
    return conjunction(_compared(">=", value, low), _compared("<=", value, high))


# --- Texts -----------------------------------------------------------------------------------------------------------------


def _of_text(node: syntax.In | syntax.Like, operand: Operand) -> Truth:
    if operand.texts is None:
        return Truth(NO, operand.null)
    present, values, unknown = operand.texts.present, operand.texts.array, operand.null
    if isinstance(node, syntax.In):
        matches = mask_of(pc.is_in(values, value_set=pa.array(node.values, pa.string())))
    else:
        long = mask_of(pc.greater(pc.binary_length(values), like_search.MAX_TEXT_OCTETS))
        if long.any():
            present, unknown = present & ~long, unknown | (present & long)
            values = pc.if_else(pa.array(long), None, values)
        matches = mask_of(_like(values, like_patterns.parts(node.pattern, node.escape)))
    return Truth(present & (~matches if node.negated else matches), unknown)


def _like(values: pa.Array, parts: list[Any]) -> pa.Array:
    any_at = [i for i, part in enumerate(parts) if part is like_patterns.ANY]
    texts = [part for part in parts if isinstance(part, str)]
    if len(any_at) + len(texts) == len(parts) and len(texts) <= 1:
        text = texts[0] if texts else ""
        if not any_at:
            return pc.equal(values, text)
        if any_at == [1]:
            return pc.starts_with(values, text)
        if any_at == [0] and texts:
            return pc.ends_with(values, text)
        return pc.match_substring(values, text)
    return pa.array(like_search.fitting(values, parts))


# --- Arithmetic --------------------------------------------------------------------------------------------------------------


def _numbers(column: NumericColumn) -> Operand:
    return Operand(~column.present, column)


_ZERO = NumericColumn(YES, np.int64(0), None, YES)


def _arithmetic(sign: str, left: NumericColumn | None, right: NumericColumn | None) -> Operand:
    if left is None or right is None:
        return Operand(YES)
    present = left.present & right.present
    if sign == "/":
        divisor = right.as_floats()
        present = present & (divisor != 0)
        return _numbers(NumericColumn(present, None, left.as_floats() / divisor, NO))
    calculate = _CALCULATE[sign]
    floats = calculate(left.as_floats(), right.as_floats())
    if left.ints is None or right.ints is None:
        return _numbers(NumericColumn(present, None, floats, NO))
    exact = left.exact & right.exact & (abs(floats) < _EXACT)
    return _numbers(NumericColumn(present, calculate(left.ints, right.ints), None if np.all(exact) else floats, exact))
