"""Parser of selectors (JMS 2.0, 3.8.1.1), by operator precedence: a Pratt parser.

From loose to tight: OR, AND, NOT, comparisons, + and -, * and /, signs. So `NOT a = 1` is `NOT (a = 1)`. Comparisons do not
chain. Types that are known without a message are checked here: strings and booleans have only = and <>, arithmetic is for
numbers, and IN, LIKE and IS NULL need an identifier.
"""

from __future__ import annotations

from ..errors import InvalidSelector
from . import like_patterns, names, syntax
from .lexer import MOST_EXACT, Token, tokens, wrong
from .names import Identifier
from .syntax import AND, COMPARISON, NOT, OR, PRODUCT, SIGN, SUM, Literal, Node

MAX_DEPTH = 100  # levels of a tree, and of nested calls
MAX_TERMS = 256  # operators, each a few vector operations
MAX_IDENTIFIERS = 32  # distinct names, each a column that is read from every message

_COMPARISONS = ("=", "<>", "<", "<=", ">", ">=")
_LEVELS = {"OR": OR, "AND": AND, "+": SUM, "-": SUM, "*": PRODUCT, "/": PRODUCT}
_LEVELS |= dict.fromkeys((*_COMPARISONS, "BETWEEN", "IN", "LIKE", "IS", "NOT"), COMPARISON)
_OPERAND = "a name, a number, a string in '…', TRUE, FALSE, '('"


def parse(text: str) -> Node:
    parser = _Parser(tokens(text))
    if parser.next.kind == "end":
        raise InvalidSelector("the selector is empty: leave it out to get every message")
    tree = parser.expression(OR)
    if parser.next.kind != "end":
        wrong(parser.next.position, parser.next.described, parser.follows(tree))
    parser.condition(tree, 1, "the whole selector")
    _check_size(tree)
    return tree


def _check_size(tree: Node) -> None:
    identifiers, terms = set(), 0
    for node, depth in syntax.walk(tree):
        if depth > MAX_DEPTH:
            raise InvalidSelector(f"the selector's operators are nested deeper than {MAX_DEPTH} levels, which is the limit")
        if isinstance(node, Identifier):
            identifiers.add(node)
        elif not isinstance(node, Literal):
            terms += 1
    for count, most, kind in ((terms, MAX_TERMS, "operators"), (len(identifiers), MAX_IDENTIFIERS, "different names")):
        if count > most:
            raise InvalidSelector(f"the selector has {count} {kind}; at most {most} are allowed")


class _Parser:
    def __init__(self, tokens: list[Token]) -> None:
        self._tokens = tokens
        self._index = 0
        self._depth = 0

    @property
    def next(self) -> Token:
        return self._tokens[self._index]

    def _take(self) -> Token:
        token = self._tokens[self._index]
        if token.kind != "end":
            self._index += 1
        return token

    def _is_next(self, *texts: str) -> bool:
        return self.next.kind in ("keyword", "operator") and self.next.text in texts

    def _expect(self, text: str, allowed: str) -> None:
        if not self._is_next(text):
            wrong(self.next.position, self.next.described, allowed)
        self._take()

    def _string(self, role: str) -> tuple[str, Token]:
        token = self._take()
        if token.kind != "string":
            wrong(token.position, token.described, f"{role}, a string in '…'")
        return str(token.value), token

    # --- Expressions ---------------------------------------------------------------------------------------------------------

    def expression(self, minimum: int) -> Node:
        """`minimum`: operators that bind less tightly end the expression."""
        self._depth += 1
        if self._depth > MAX_DEPTH:
            wrong(self.next.position, self.next.described, f"no more than {MAX_DEPTH} levels of parentheses and operators")
        start = self.next.position
        left, tightest = self._operand()
        while self.next.kind in ("keyword", "operator"):
            level = _LEVELS.get(self.next.text, -1)
            if not minimum <= level <= tightest:
                break
            left = self._operator(left, level, start)
            tightest = AND if level == COMPARISON else level  # a comparison is an operand only in parentheses
        self._depth -= 1
        return left

    def _operand(self) -> tuple[Node, int]:
        """Also return how tightly the next operator may bind."""
        token = self._take()
        if token.kind in ("string", "number"):
            return self._literal(token), SIGN
        if token.kind in ("identifier", "quoted"):
            return names.resolve(token), SIGN
        if token.kind == "keyword":
            return self._keyword(token)
        if token.text == "(" and token.kind == "operator":
            inside = self.expression(OR)
            self._expect(")", f"')', {self.follows(inside)}")
            return inside, SIGN
        if token.text not in ("+", "-") or token.kind != "operator":
            wrong(token.position, token.described, f"{_OPERAND}, NOT, '+', '-'")
        return self._signed(token), SIGN

    def _keyword(self, token: Token) -> tuple[Node, int]:
        if token.text in ("TRUE", "FALSE"):
            return Literal(token.text == "TRUE"), SIGN
        if token.text == "NULL":
            wrong(token.position, "NULL", f"{_OPERAND}; to test for NULL, write IS NULL or IS NOT NULL")
        if token.text != "NOT":
            wrong(token.position, token.described, f"{_OPERAND}, NOT, '+', '-'")
        position = self.next.position
        operand = self.expression(NOT)
        self.condition(operand, position, "the operand of NOT")
        return syntax.Not(operand), AND

    def _literal(self, token: Token) -> Literal:
        value = token.value
        assert value is not None
        if type(value) is int and value == MOST_EXACT:
            wrong(
                token.position, repr(token.text), "exact numbers of 64 bits; larger ones as approximate numbers, such as 1.0E20"
            )
        return Literal(value)

    def _signed(self, sign: Token) -> Node:
        if sign.text == "-" and self.next.kind == "number":
            value = self._take().value
            assert isinstance(value, (int, float))
            return Literal(-value)
        operand = self._number_operand(SIGN, f"the operand of '{sign.text}'")
        if sign.text == "+":
            return operand
        if isinstance(operand, Literal) and isinstance(operand.value, (int, float)) and operand.value != -MOST_EXACT:
            return Literal(-operand.value)
        return syntax.Negative(operand)

    def _operator(self, left: Node, level: int, start: int) -> Node:
        token = self._take()
        if token.text in ("AND", "OR"):
            return self._logic(token.text, left, level, start)
        if token.text in _COMPARISONS:
            return self._comparison(token.text, left, start)
        if level == COMPARISON:
            return self._predicate(token, left, start)
        position = self.next.position
        right = self.expression(level + 1)
        for operand, at in ((left, start), (right, position)):
            self._number(operand, at, f"an operand of '{token.text}'")
        return syntax.Arithmetic(token.text, left, right)

    def _logic(self, operator: str, left: Node, level: int, start: int) -> Node:
        position = self.next.position
        right = self.expression(level + 1)
        terms: list[Node] = []
        for operand, at in ((left, start), (right, position)):
            self.condition(operand, at, f"an operand of {operator}")
            terms += operand.terms if isinstance(operand, syntax.Logic) and operand.operator == operator else [operand]
        return syntax.Logic(operator, tuple(terms))

    # --- Conditions ------------------------------------------------------------------------------------------------------------

    def _comparison(self, operator: str, left: Node, start: int) -> Node:
        position = self.next.position
        right = self.expression(SUM)
        if operator not in ("=", "<>"):
            for operand, at in ((left, start), (right, position)):
                self._number(operand, at, f"an operand of '{operator}' (strings and booleans have = and <> only)")
        return syntax.Comparison(operator, self._with_id(left, right), self._with_id(right, left))

    def _with_id(self, node: Node, opposite: Node) -> Node:
        if isinstance(node, Literal) and isinstance(node.value, str) and isinstance(opposite, Identifier) and _is_id(opposite):
            return Literal(names.id_text(node.value))
        return node

    def _predicate(self, token: Token, left: Node, start: int) -> Node:
        negated = token.text == "NOT"
        if negated:
            token = self._take()
            if token.kind != "keyword" or token.text not in ("BETWEEN", "IN", "LIKE"):
                wrong(token.position, token.described, "BETWEEN, IN, LIKE")
        if token.text == "BETWEEN":
            return self._between(left, start, negated)
        if not isinstance(left, Identifier):
            wrong(start, "an expression", f"before {token.text} the name of a field or property")
        if token.text == "IS":
            negated = self._is_next("NOT") and self._take() is not None
            self._expect("NULL", "NULL" if negated else "NULL, NOT NULL")
            return syntax.IsNull(left, negated)
        if left.type not in ("string", "any"):
            wrong(start, f"{left.name!r}, which is a {left.type}", f"before {token.text} the name of a string")
        return self._in(left, negated) if token.text == "IN" else self._like(left, negated)

    def _between(self, left: Node, start: int, negated: bool) -> Node:
        self._number(left, start, "the value before BETWEEN")
        low = self._number_operand(SUM, "a bound of BETWEEN")
        self._expect("AND", "AND")
        return syntax.Between(left, low, self._number_operand(SUM, "a bound of BETWEEN"), negated)

    def _number_operand(self, minimum: int, role: str) -> Node:
        position = self.next.position
        operand = self.expression(minimum)
        self._number(operand, position, role)
        return operand

    def _in(self, left: Identifier, negated: bool) -> Node:
        self._expect("(", "'('")
        values = []
        while True:
            text, _ = self._string("a value of IN")
            values.append(names.id_text(text) if _is_id(left) else text)
            if not self._is_next(",", ")"):
                wrong(self.next.position, self.next.described, "',', ')'")
            if self._take().text == ")":
                return syntax.In(left, tuple(sorted(set(values))), negated)

    def _like(self, left: Identifier, negated: bool) -> Node:
        pattern, token = self._string("the pattern of LIKE")
        escape = None
        if self._is_next("ESCAPE"):
            self._take()
            escape, word = self._string("the character of ESCAPE")
            if len(escape) != 1:
                wrong(word.position, word.described, "one character in '…'")
        signs = like_patterns.parts(pattern, escape).count(like_patterns.ANY)
        if signs > like_patterns.MAX_WILDCARDS:
            wrong(token.position, f"{signs} signs %", f"at most {like_patterns.MAX_WILDCARDS} in a pattern")
        return syntax.Like(left, pattern, escape, negated)

    # --- Allowed types -----------------------------------------------------------------------------------------------------

    def condition(self, node: Node, position: int, role: str) -> None:
        if node.type not in ("boolean", "any"):
            wrong(position, f"a {node.type}", f"{role} is a condition: a comparison, TRUE, FALSE, the name of a boolean property")

    def _number(self, node: Node, position: int, role: str) -> None:
        if node.type not in ("number", "any"):
            wrong(
                position, f"a {node.type}", f"{role} is a number: a numeric literal, the name of a property, arithmetic of them"
            )

    def follows(self, node: Node) -> str:
        """Return the tokens that may follow an expression."""
        if isinstance(node, (Literal, Identifier)) or node.type != "boolean":
            return "= <> < <= > >= + - * / BETWEEN IN LIKE IS NOT AND OR, or the end"
        return "AND, OR, or the end"


def _is_id(node: Identifier) -> bool:
    return node.field in ("messageId", "correlationId")
