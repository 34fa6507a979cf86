"""Q8: valid selectors, the canonical text of equal selectors, and the errors of invalid ones."""

from __future__ import annotations

import sys

import pytest

from penstock.broker_core.errors import InvalidRequest, InvalidSelector
from penstock.broker_core.selectors import parse, parse_optional

SAME = [
    # precedence: OR, AND, NOT, comparisons, + -, * /, signs
    ("a=1 OR b=2 AND NOT c", "a = 1 OR b = 2 AND NOT c"),
    ("a = 1 OR (b = 2 AND (NOT (c)))", "a = 1 OR b = 2 AND NOT c"),
    ("(a = 1 or b = 2) and c", "(a = 1 OR b = 2) AND c"),
    ("not a = 1", "NOT a = 1"),
    ("NOT (a AND b)", "NOT (a AND b)"),
    ("a AND (b AND (c))", "a AND b AND c"),
    ("a + b * c - d > 0", "a + b * c - d > 0"),
    ("(a + b) * c - (d - e) > 0", "(a + b) * c - (d - e) > 0"),
    ("- a * + b = - - c", "- a * b = - - c"),
    ("(a > 1) = TRUE", "(a > 1) = TRUE"),
    ("a BETWEEN 1 AND 2 AND b", "a BETWEEN 1 AND 2 AND b"),
    ("a NOT between b+1 and c", "a NOT BETWEEN b + 1 AND c"),
    # literals
    ("a=1L or a=0x1F or a=017 or a=0", "a = 1 OR a = 31 OR a = 15 OR a = 0"),
    ("a = -9223372036854775808", "a = -9223372036854775808"),
    ("a = 1.5e3 OR a = 7. OR a = .5 OR a=1E1D or a = +6.2", "a = 1500.0 OR a = 7.0 OR a = 0.5 OR a = 10.0 OR a = 6.2"),
    ("a = 1.1f", "a = 1.100000023841858"),
    ("a = 'it''s' AND b = true", "a = 'it''s' AND b = TRUE"),
    ("a in('y','x','y')", "a IN ('x', 'y')"),
    ("a not like '10!%%' escape '!'", "a NOT LIKE '10!%%' ESCAPE '!'"),
    ("a is null or b Is Not Null", "a IS NULL OR b IS NOT NULL"),
    # names: case-sensitive, of letters, digits, _, $ and (as in Qpid) dots; other characters need double quotes
    ("Größe_1$ = größe_1$", "Größe_1$ = größe_1$"),
    ("properties.colour = 'red' AND colour = 'red'", "colour = 'red' AND colour = 'red'"),
    ('"order-id" = 1 AND "colour" = 1', '"order-id" = 1 AND colour = 1'),
    ('"NULL" = 1 AND "a ""b""" = 1 AND "JMSType" = 1', '"NULL" = 1 AND "a ""b""" = 1 AND "JMSType" = 1'),
    ("JMSType = 'a' AND amqp.jms_type = 'a'", "amqp.subject = 'a' AND amqp.subject = 'a'"),
    ("JMS_own = 1", "JMS_own = 1"),
    ("JMSXAppID = 'a' AND JMSXState = 1", "JMSXAppID = 'a' AND JMSXState = 1"),
    ("JMSXGroupID = 'a' AND JMSXUserID = 'b'", "amqp.group_id = 'a' AND amqp.user_id = 'b'"),
    ('"JMSXAppID" = 1 AND "JMSXGroupSeq" = 1', 'JMSXAppID = 1 AND "JMSXGroupSeq" = 1'),
    (
        "JMSMessageID = 'ID:AMQP_ULONG:7' OR JMSCorrelationID IN ('ID:x')",
        "amqp.message_id = '7' OR amqp.correlation_id IN ('ID:x')",
    ),
    ("'ID:AMQP_BINARY:00FF' = JMSCorrelationID", "'AP8=' = amqp.correlation_id"),
    ("subject = 'ID:AMQP_ULONG:7'", "subject = 'ID:AMQP_ULONG:7'"),
]


@pytest.mark.parametrize(("written", "canonical"), SAME)
def test_a_selector_has_one_canonical_text_however_it_is_written(written: str, canonical: str) -> None:
    selector = parse(written)
    assert selector.text == str(selector) == canonical
    assert parse(canonical) == selector
    assert hash(parse(canonical)) == hash(selector)


def test_identifiers_are_named_once_each_in_order_of_no_importance() -> None:
    selector = parse("a > 1 AND (a < 5 OR JMSType = 'x' OR amqp.subject = 'y')")
    assert {(identifier.field, identifier.name) for identifier in selector.identifiers} == {
        (None, "a"),
        ("subject", "amqp.subject"),
    }
    assert len(selector.identifiers) == 2


WRONG = [
    ("a = ", 5, "found the end", "a name, a number"),
    ("a = 1 b", 7, "found 'b'", "AND, OR, or the end"),
    ("a = 1 = 2", 7, "found '='", "AND, OR, or the end"),
    ("NOT a = 1 = 2", 11, "found '='", "AND"),
    ("(a = 1", 7, "found the end", "')'"),
    ("a = 1)", 6, "found ')'", "AND, OR, or the end"),
    ("a = 'x", 5, "a quotation that does not end", "text that ends with '"),
    ("a != 3", 3, "found '!'", "= <> < <= > >= + - * /"),
    ("a % 2 = 1", 3, "found '%'", "operators"),
    ("1x = 2", 1, "found '1x'", "a name that begins with a letter"),
    ("a = 09", 5, "found '09'", "octal digits 0 to 7"),
    ("a = 9223372036854775808", 5, "found '9223372036854775808'", "64 bits"),
    ("a = 1e999", 5, "found '1e999'", "1.7976931348623157E308"),
    ("a = 1e39f", 5, "found '1e39f'", "3.4028235E38"),
    # comments, which the other brokers' parsers skip and JMS does not have
    ("a = 1 -- b", 7, "found '--'", "no comments"),
    ("a = 1 /* b */", 7, "found '/*'", "no comments"),
    # types that are known without a message
    ("3 + 5", 1, "a number", "the whole selector is a condition"),
    ("'a'", 1, "a string", "the whole selector is a condition"),
    ("a = 1 AND 2", 11, "a number", "an operand of AND is a condition"),
    ("NOT 5", 5, "a number", "the operand of NOT is a condition"),
    ("a < 'x'", 5, "a string", "strings and booleans have = and <> only"),
    ("TRUE > a", 1, "a boolean", "strings and booleans have = and <> only"),
    ("amqp.durable >= 1", 1, "a boolean", "strings and booleans have = and <> only"),
    ("a + 'x' = 'yx'", 5, "a string", "an operand of '+' is a number"),
    ("- (a = 1) = 1", 3, "a boolean", "the operand of '-' is a number"),
    ("JMSType BETWEEN 1 AND 2", 1, "a string", "the value before BETWEEN is a number"),
    ("a BETWEEN 1, 2", 12, "found ','", "AND"),
    ("a = NULL", 5, "found NULL", "IS NULL or IS NOT NULL"),
    ("a IS 5", 6, "found '5'", "NULL, NOT NULL"),
    ("a NOT = 5", 7, "found '='", "BETWEEN, IN, LIKE"),
    ("a IN ()", 7, "found ')'", "a value of IN, a string"),
    ("a IN (1)", 7, "found '1'", "a value of IN, a string"),
    ("a IN ('x' 'y')", 11, "found \"'y'\"", "',', ')'"),
    ("a LIKE b", 8, "found 'b'", "the pattern of LIKE"),
    ("a LIKE 'x' ESCAPE 'ab'", 19, "'ab'", "one character"),
    ("5 LIKE 'x'", 1, "an expression", "the name of a field or property"),
    ("a + 1 IS NULL", 1, "an expression", "the name of a field or property"),
    ("JMSPriority LIKE '4'", 1, "'amqp.priority', which is a number", "the name of a string"),
    # names that would never match, or not always the same
    ("JMSFoo = 1", 1, "found 'JMSFoo'", "JMSCorrelationID, JMSDeliveryMode"),
    ("amqp.foo = 1", 1, "found 'amqp.foo'", 'as "amqp.foo"'),
    ("a = 1 AND JMSRedelivered", 11, "found 'JMSRedelivered'", "a selector is evaluated once"),
    ("JMSXDeliveryCount > 1", 1, "found 'JMSXDeliveryCount'", "set maxAttempts"),
    ("amqp.delivery_count > 1", 1, "found 'amqp.delivery_count'", "look at its delivery count"),
]


@pytest.mark.parametrize(("text", "position", "unexpected", "allowed"), WRONG)
def test_a_text_that_is_no_selector_is_refused_with_its_position_what_was_found_and_what_is_allowed(
    text: str, position: int, unexpected: str, allowed: str
) -> None:
    with pytest.raises(InvalidSelector) as error:
        parse(text)
    assert error.value.position == position
    assert f"at character {position}: " in str(error.value)
    before, after = str(error.value).split("; allowed here: ", 1)
    assert unexpected in before
    assert allowed in after
    assert isinstance(error.value, InvalidRequest)


@pytest.mark.parametrize("text", ["", " \t\n\r\f"])
def test_a_blank_selector_is_none(text: str) -> None:
    assert parse_optional(text) is None
    with pytest.raises(InvalidSelector, match="leave it out"):
        parse(text)


def test_only_what_the_parser_skips_is_blank() -> None:
    assert parse_optional(None) is None
    assert parse_optional(" a = 1 ") == parse("a = 1")
    with pytest.raises(InvalidSelector):
        parse_optional("\u00a0")


TOO_MUCH = {
    "characters": ("a = '" + "x" * 4090 + "' ", "4096 are allowed"),
    "parentheses": ("(" * 101 + "a" + ")" * 101, "no more than 100 levels"),
    "signs": ("a = " + "- " * 101 + "b", "no more than 100 levels"),
    "a long sum": ("a" + " + a" * 101 + " = 1", "deeper than 100 levels"),
    "operators": (" OR ".join(["a=1"] * 257), "258 operators; at most 256 are allowed"),
    "names": (" OR ".join(f"a{n}" for n in range(33)), "33 different names; at most 32 are allowed"),
    "signs %": ("a LIKE '" + "%x" * 33 + "'", "at most 32 in a pattern"),
}


@pytest.mark.parametrize("case", TOO_MUCH)
def test_size_and_depth_have_limits_that_are_named(case: str) -> None:
    text, message = TOO_MUCH[case]
    with pytest.raises(InvalidSelector, match=message):
        parse(text)


def test_the_largest_selector_that_is_allowed_needs_little_of_the_stack() -> None:
    deep = "(" * 98 + "a" + ")" * 98
    here = sys.getrecursionlimit()
    depth = len(__import__("inspect").stack())
    sys.setrecursionlimit(depth + 420)
    try:
        assert parse(deep + " AND b").text == "a AND b"
        assert parse("NOT " * 95 + "a").text.endswith("NOT a")
    finally:
        sys.setrecursionlimit(here)
