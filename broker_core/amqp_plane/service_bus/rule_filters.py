"""Filters of the vendor's rules, translated into selectors.

| the vendor's SQL | selector |
|---|---|
| `sys.Label`, `sys.CorrelationId` … in any case | the field: `amqp.subject`, `amqp.correlation_id` … |
| `name`, `user.name`, `[any name]`, `"any name"` | the application property, in double quotes |
| `EXISTS(name)` | `name IS NOT NULL` |
| `!=` | `<>` |
| `name IN (1, 'a')` | `(name = 1 OR name = 'a')` |
| functions, parameters, `%` | refused |

The parser of selectors checks the rest. Names of properties, and texts, are compared exactly.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NoReturn

from ... import selectors
from ...amqp import Condition
from ...amqp.types import Pairs
from ...errors import InvalidSelector
from ...selectors.lexer import MAX_LENGTH
from ..conditions import Refusal

_FIELDS = {
    "correlation-id": "amqp.correlation_id",
    "message-id": "amqp.message_id",
    "to": "amqp.to",
    "reply-to": "amqp.reply_to",
    "label": "amqp.subject",
    "session-id": "amqp.group_id",
    "content-type": "amqp.content_type",
}
_PROPERTIES = "properties"
#: The fields of a correlation filter, in the order of its list.
CORRELATION = (*list(_FIELDS)[:-1], "reply-to-session-id", "content-type", _PROPERTIES)
_SYSTEM = {name.replace("-", ""): field for name, field in _FIELDS.items()} | {"subject": _FIELDS["label"]}
_SHOWN = "sys.CorrelationId, sys.MessageId, sys.To, sys.ReplyTo, sys.Label, sys.SessionId and sys.ContentType"
_KEYWORDS = {"AND", "OR", "NOT", "IS", "NULL", "LIKE", "ESCAPE", "IN", "BETWEEN", "TRUE", "FALSE", "EXISTS"}
_ALWAYS = {"TRUE", "1 = 1"}  # canonical selectors that every message matches

_TOKEN = re.compile(
    r"""\s*(?:
    (?P<string>'(?:[^']|'')*')
    | (?P<number>0[xX][0-9a-fA-F]+|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)
    | (?:(?P<scope>\w+)\s*\.\s*)?(?:\[(?P<bracketed>(?:[^\]]|\]\])+)\]|"(?P<quoted>(?:[^"]|"")+)"|(?P<name>[^\W\d][\w$\#]*))
    | (?P<operator><>|!=|<=|>=|[<>=(),+\-*/])
    )""",
    re.VERBOSE,
)


def of_sql(expression: str) -> str | None:
    """Return the selector of an SQL filter; None if every message matches. Raises Refusal."""
    tokens = _tokens(expression)
    parts: list[str] = []
    while tokens:
        kind, text = tokens.pop(0)
        if kind == "keyword" and text == "EXISTS":
            parts += [_argument_of_exists(tokens, expression), "IS NOT NULL"]
        elif kind == "name" and (several := _take_list(tokens)) is not None:
            negated, values = several
            parts.append(f"{'NOT ' * negated}({' OR '.join(f'{text} = {value}' for value in values)})")
        else:
            parts.append(text)
    return _checked(" ".join(parts), expression)


def of_correlation(fields: Mapping[Any, Any]) -> str | None:
    """Return the selector of a correlation filter, whose conditions must all hold. Raises Refusal."""
    terms = []
    for name, value in fields.items():
        if value is None or name == _PROPERTIES:
            continue
        if name not in _FIELDS:
            _refuse(f"a correlation filter has no condition {name!r:.80} here; it has {', '.join((*_FIELDS, _PROPERTIES))}")
        if not isinstance(value, str):
            _refuse(f"the condition {name!r} of a correlation filter is a text, not {value!r:.80}")
        terms.append(f"{_FIELDS[name]} = {_literal(value)}")
    properties = fields.get(_PROPERTIES) or {}
    if not isinstance(properties, (dict, Pairs)):
        _refuse(f"the properties of a correlation filter are a map, not {properties!r:.80}")
    for name, value in dict(properties).items():
        if not isinstance(name, str) or not isinstance(value, (str, bool, int, float)):
            _refuse(f"the property {name!r:.80} of a correlation filter is a text, a number or a boolean, not {value!r:.80}")
        terms.append(f"{_property(name)} = {_literal(value)}")
    if not terms:
        _refuse("a correlation filter needs a condition: use a true filter for every message")
    text = " AND ".join(terms)
    return _checked(text, text)


def _checked(selector: str, shown: str) -> str | None:
    try:
        text = selectors.parse(selector).text
    except InvalidSelector as error:
        _refuse(f"the filter {shown!r:.80} has no equivalent here, as the selector {selector!r:.80}: {error}")
    return None if text in _ALWAYS else text


def _tokens(expression: str) -> list[tuple[str, str]]:
    if len(expression) > MAX_LENGTH:  # of the selector, which is hardly shorter
        _refuse(f"the filter has {len(expression):,} characters; at most {MAX_LENGTH:,} are allowed")
    tokens, index, end = list[tuple[str, str]](), 0, len(expression.rstrip())
    while index < end:
        match = _TOKEN.match(expression, index)
        if match is None:
            rest = expression[index:].lstrip()
            _refuse(f"the filter {expression!r:.80} has {rest[:1]!r} before {rest[1:]!r:.40}, which a rule cannot have here")
        index = match.end()
        tokens.append(_token(match, expression))
    return tokens


def _token(match: re.Match[str], expression: str) -> tuple[str, str]:
    word, delimited = match["name"], match["bracketed"] or match["quoted"]
    if word is None and delimited is None:
        kind = "number" if match["number"] else "string" if match["string"] else "operator"
        text = match[kind]
        if kind == "number" and text.isdigit():
            text = str(int(text))  # a leading 0 means octal in selectors
        return kind, "<>" if text == "!=" else text
    if word is not None and match["scope"] is None and word.upper() in _KEYWORDS:
        return "keyword", word.upper()
    name = word or delimited.replace("]]", "]" if match["bracketed"] else "]]").replace('""', '"' if match["quoted"] else '""')
    scope = (match["scope"] or "user").lower()
    if scope == "sys":
        if name.lower() not in _SYSTEM:
            _refuse(f"the filter {expression!r:.80} has sys.{name:.80}; a rule here may compare {_SHOWN}")
        return "name", _SYSTEM[name.lower()]
    if scope != "user":
        _refuse(f"the filter {expression!r:.80} has {scope!r:.80} before a name, which can be sys or user")
    if expression[match.end() :].lstrip().startswith("("):
        _refuse(f"the filter {expression!r:.80} calls {name!r:.80}: rules have no functions here")
    return "name", _property(name)


def _argument_of_exists(tokens: list[tuple[str, str]], expression: str) -> str:
    following = [tokens.pop(0) for _ in range(min(3, len(tokens)))]
    if len(following) < 3 or (following[0][1], following[1][0], following[2][1]) != ("(", "name", ")"):
        _refuse(f"the filter {expression!r:.80} has EXISTS without a name in parentheses")
    return following[1][1]


def _take_list(tokens: list[tuple[str, str]]) -> tuple[bool, list[str]] | None:
    """Take `IN (…)` or `NOT IN (…)` with a number or a boolean: selectors accept only texts there.

    Returns whether it is negated, and its values.
    """
    texts = [text for _, text in tokens[:3]]
    negated = texts[:2] == ["NOT", "IN"]
    if not negated and texts[:1] != ["IN"]:
        return None
    end = next((at for at, (_, text) in enumerate(tokens) if text == ")"), None)
    values = tokens[2 + negated : end]
    if end is None or all(kind == "string" or text == "," for kind, text in values):
        return None
    del tokens[: end + 1]
    return negated, "".join(f" {text}" for _, text in values).split(" , ")


def _property(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


def _literal(value: str | bool | float) -> str:
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    if isinstance(value, str):
        return "'" + value.replace("'", "''") + "'"
    return repr(float(value)) if isinstance(value, float) else str(int(value))


def _refuse(text: str) -> NoReturn:
    raise Refusal(Condition.INVALID_FIELD, text)
