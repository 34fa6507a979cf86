"""E1 E3: the routing of messages to queues, compared with models that ignore speed."""

from __future__ import annotations

import re
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from penstock.broker_core import errors
from penstock.broker_core.engine.columns.attributes import Coded
from penstock.broker_core.engine.columns.rowset import as_array
from penstock.broker_core.engine.model import exchange_options, header_bindings
from penstock.broker_core.engine.model.bindings import Binding
from penstock.broker_core.engine.model.exchange import Exchange, Exchanges
from penstock.broker_core.engine.model.header_bindings import matching
from penstock.broker_core.engine.model.routes import Examined, Sending, Stale, particulars, route
from penstock.broker_core.engine.model.topics import Trie
from penstock.broker_core.messages.encoding import texts


def made(kind: str, *bindings: Binding, name: str = "x", **options: Any) -> Exchanges:
    exchanges = Exchanges()
    exchanges.add(Exchange(name, kind, options))
    for binding in bindings:
        exchanges.bind(name, binding, exchanges.by_name[name].next_number)
    return exchanges


def routed(exchanges: Exchanges, keys: Any = "", count: int = 1, queues: tuple[str, ...] = (), **how: Any) -> Any:
    """Return the messages by queue, the refused ones, and the number of dropped ones."""
    routing = route(exchanges.by_name, dict.fromkeys(queues), "x", Sending(count, keys, **how))
    named = [queue for part in routing.parts for queue in part.queues]
    assert len(named) == len(set(named)), "a queue in two parts"
    by_queue = {queue: as_array(part.rows).tolist() for part in routing.parts for queue in part.queues}
    assert all(rows == sorted(set(rows)) for rows in by_queue.values()), "a message twice in a queue"
    return by_queue, as_array(routing.refused).tolist(), routing.dropped


TOPICS = [
    ("a.b", "a.b", True),
    ("a.b", "a.b.c", False),
    ("a.b", "a", False),
    ("a.*", "a.b", True),
    ("a.*", "a", False),
    ("a.*", "a.b.c", False),
    ("*", "a", True),
    ("*", "", False),
    ("", "", True),
    ("#", "", True),
    ("#", "a.b.c", True),
    ("a.#", "a", True),
    ("a.#", "a.b.c", True),
    ("a.#", "b.a", False),
    ("#.b", "b", True),
    ("#.b", "a.c.b", True),
    ("#.b", "a.b.c", False),
    ("a.#.b", "a.b", True),
    ("a.#.b", "a.x.y.b", True),
    ("a.#.b", "a.b.x", False),
    ("a.#.#.b", "a.b", True),
    ("*.#", "a", True),
    ("*.#", "", False),
    ("#.*", "a", True),
    ("#.#", "", True),
    ("a..b", "a..b", True),
    ("a.*.b", "a..b", True),
    ("a*", "ab", False),
    ("*.*", "*.#", True),
    ("a", "#", False),
]


@pytest.mark.parametrize(("pattern", "key", "matches"), TOPICS)
def test_E1_a_topic_pattern(pattern: str, key: str, matches: bool) -> None:
    trie = Trie()
    trie.add(pattern, 7)
    assert list(trie.match(key)) == ([7] if matches else [])


def by_expression(pattern: str, key: str) -> bool:
    """Match by a regular expression: `#` stands for any number of words."""
    words = pattern.split(".") if pattern else []
    expressions = [{"*": "[^;]*;", "#": "([^;]*;)*"}.get(word, re.escape(word) + ";") for word in words]
    text = "".join(word + ";" for word in (key.split(".") if key else []))
    return re.fullmatch("".join(expressions), text) is not None


WORDS = st.sampled_from(["a", "b", "", "*", "#"])
PATTERNS = st.lists(WORDS, max_size=5).map(".".join)
KEYS = st.lists(st.sampled_from(["a", "b", "c", ""]), max_size=6).map(".".join)


@given(st.lists(PATTERNS, max_size=12), st.data(), KEYS)
def test_E1_topic_patterns_against_expressions(patterns: list[str], data: st.DataObject, key: str) -> None:
    trie = Trie()
    for number, pattern in enumerate(patterns):
        trie.add(pattern, number)
    gone = data.draw(st.sets(st.sampled_from(range(len(patterns))))) if patterns else set()
    for number in gone:
        trie.remove(patterns[number], number)
    matches = list(trie.match(key))
    assert sorted(matches) == [n for n, pattern in enumerate(patterns) if n not in gone and by_expression(pattern, key)]
    for number in set(range(len(patterns))) - gone:
        trie.remove(patterns[number], number)
    assert (trie._root.children, trie._root.here) == ({}, {}), "removals leave an empty trie"


def header_model(arguments: dict[str, Any], headers: dict[str, str]) -> bool:
    mode = arguments.get("x-match", "all")
    wanted = [(k, v) for k, v in arguments.items() if k != "x-match" and (mode.endswith("with-x") or not k.startswith("x-"))]
    hits = [k in headers and (v is None or headers[k] == str(v)) for k, v in wanted]
    return all(hits) if mode.startswith("all") else any(hits)


NAMES = st.sampled_from(["k", "l", "x-m"])
ARGUMENTS = st.builds(
    lambda values, mode: {**values, **({"x-match": mode} if mode else {})},
    st.dictionaries(NAMES, st.sampled_from([None, "1", 1, "2"]), max_size=3),
    st.sampled_from([None, *header_bindings.MODES]),
)
HEADERS = st.dictionaries(NAMES, st.sampled_from(["1", "2", "3"]), max_size=3)


@given(st.floats() | st.floats(-1e6, 1e6) | st.integers(-(10**17), 10**17).map(float))
@settings(deadline=None)  # the first cast of Arrow loads its kernels
@example(1.0)
@example(-0.0)
@example(1e-7)
def test_E1_a_number_that_a_binding_wants_has_the_text_that_the_column_shows(value: float) -> None:
    assert header_bindings.terms({"weight": value}) == [("weight", texts.text(value))]


@given(st.lists(ARGUMENTS, max_size=6), st.lists(HEADERS, min_size=1, max_size=8), st.sampled_from([1, 7, 1 << 22]))
def test_E1_headers_against_a_model(bindings: list[dict[str, Any]], messages: list[dict[str, str]], cells: int) -> None:
    rows_by_term: dict[Any, list[int]] = {}
    for row, headers in enumerate(messages):
        for name, text in headers.items():
            rows_by_term.setdefault((name, None), []).append(row)
            rows_by_term.setdefault((name, text), []).append(row)
    before, header_bindings.CELLS = header_bindings.CELLS, cells  # also tables of a few rows
    try:
        matched = matching(enumerate(bindings), {term: np.array(rows) for term, rows in rows_by_term.items()}, len(messages))
    finally:
        header_bindings.CELLS = before
    expected = {n: [row for row, headers in enumerate(messages) if header_model(b, headers)] for n, b in enumerate(bindings)}
    assert {n: rows.tolist() for n, rows in matched.items()} == {n: rows for n, rows in expected.items() if rows}


def test_E1_direct_fanout_and_topic_place_a_message_once_in_each_queue() -> None:
    direct = made("direct", Binding("q", "red"), Binding("r", "red"), Binding("r", "blue"), Binding("r", "red", selector="a = 1"))
    assert routed(direct, "red", 3) == ({"q": [0, 1, 2], "r": [0, 1, 2]}, [], 0)
    assert routed(direct, "blue", 2) == ({"r": [0, 1]}, [], 0)
    fanout = made("fanout", Binding("q"), Binding("q", "whatever"), Binding("r"))
    assert routed(fanout, "any", 2) == ({"q": [0, 1], "r": [0, 1]}, [], 0)
    topic = made("topic", Binding("q", "a.#"), Binding("q", "#.z"), Binding("r", "a.*"))
    assert routed(topic, "a.z") == ({"q": [0], "r": [0]}, [], 0)


def test_E1_a_binding_holds_from_its_declaration_to_its_end() -> None:
    for kind in ("direct", "fanout", "topic"):
        exchanges = made(kind, Binding("q", "k"))
        assert routed(exchanges, "k") == ({"q": [0]}, [], 0)
        exchanges.bind("x", Binding("r", "k"), 7)
        assert routed(exchanges, "k") == ({"q": [0], "r": [0]}, [], 0)
        exchanges.unbind("x", [0])
        assert routed(exchanges, "k") == ({"r": [0]}, [], 0)


def test_E1_each_message_with_a_key_of_its_own() -> None:
    topic = made("topic", Binding("q", "a.#"), Binding("r", "#.z"), Binding("s", ""))
    keys = Coded(["a.z", "a.b", "c"], np.array([1, 2, 3, 0, 1]))
    assert routed(topic, keys, 5) == ({"q": [0, 1, 4], "r": [0, 4], "s": [3]}, [2], 0)


@given(st.lists(st.tuples(st.sampled_from("pqr"), PATTERNS), max_size=8), st.lists(KEYS, min_size=1, max_size=10))
def test_E1_a_batch_goes_where_its_messages_would_go_alone(pairs: list[tuple[str, str]], keys: list[str]) -> None:
    topic = made("topic", *(Binding(queue, pattern) for queue, pattern in dict.fromkeys(pairs)))
    names = sorted({key for key in keys if key})
    codes = np.array([names.index(key) + 1 if key else 0 for key in keys])
    by_queue, refused, _ = routed(topic, Coded(names, codes), len(keys))
    for row, key in enumerate(keys):
        alone, none, _ = routed(topic, key)
        assert {queue for queue, rows in by_queue.items() if row in rows} == set(alone)
        assert (row in refused) == bool(none)


def test_E1_bindings_that_look_inside_see_what_was_examined() -> None:
    exchanges = made("direct", Binding("q", "k", selector="a = 1"), Binding("r", "k"), Binding("s", "l", selector="b"))
    ((_, version, inside),) = particulars(exchanges.by_name, "x", "k")
    assert [number for number, _ in inside] == [0], "only bindings of the key are examined"
    examined = {"x": Examined(version, {0: np.array([1])})}
    assert routed(exchanges, "k", 3, examined=examined) == ({"q": [1], "r": [0, 1, 2]}, [], 0)
    exchanges.unbind("x", [1])
    with pytest.raises(Stale):
        routed(exchanges, "k", 3, examined=examined)
    examined = {"x": Examined(exchanges.by_name["x"].version, {0: np.array([1])})}
    assert routed(exchanges, "k", 3, examined=examined) == ({"q": [1]}, [0, 2], 0)
    with pytest.raises(Stale):
        routed(exchanges, "k", 3)


def test_E1_no_local_keeps_back_what_its_own_container_sends() -> None:
    exchanges = made("fanout", Binding("q", no_local="me"), Binding("r"))
    assert routed(exchanges, container="me") == ({"r": [0]}, [], 0)
    assert routed(exchanges, container="you") == ({"q": [0], "r": [0]}, [], 0)


def test_E3_what_no_queue_is_for() -> None:
    assert routed(made("direct", Binding("q", "k")), "other", 2) == ({}, [0, 1], 0)
    assert routed(made("direct", Binding("q", "k"), unroutable="drop"), "other", 2) == ({}, [], 2)
    to_queue = made("direct", Binding("q", "k"), alternate="rest")
    assert routed(to_queue, "other", 2, ("rest",)) == ({"rest": [0, 1]}, [], 0)
    assert routed(to_queue, "other", 2) == ({}, [0, 1], 0), "a missing alternate"
    keys = Coded(["k"], np.array([1, 0]))
    assert routed(to_queue, keys, 2, ("rest",)) == ({"q": [0], "rest": [1]}, [], 0)


def test_E3_alternates_follow_each_other_and_a_circle_ends() -> None:
    exchanges = made("direct", Binding("q", "k"), alternate="y")
    exchanges.add(Exchange("y", "topic", {"alternate": "x"}))
    exchanges.bind("y", Binding("q", "a.*"), 0)
    keys = Coded(["k", "a.b", "c"], np.array([1, 2, 3]))
    assert routed(exchanges, keys, 3) == ({"q": [0, 1]}, [2], 0)


def test_E1_deleting_a_queue_takes_its_bindings() -> None:
    exchanges = made("fanout", Binding("q"), Binding("r"), Binding("q", "again"))
    exchanges.forget_queue("q")
    assert routed(exchanges) == ({"r": [0]}, [], 0)
    assert not exchanges.leading_to("q")


def test_E1_the_same_from_json() -> None:
    exchanges = made(
        "headers", Binding("q", arguments={"a": 1, "b": None, "x-match": "any"}), alternate="y", unroutable="alternate"
    )
    exchanges.bind("x", Binding("q", selector="a = 1", no_local="me"), 5)
    again = Exchanges()
    for exchange in exchanges.by_name.values():
        again.add(Exchange.from_json(exchange.to_json()))
    assert [exchange.to_json() for exchange in again.by_name.values()] == [
        exchange.to_json() for exchange in exchanges.by_name.values()
    ]
    assert again.by_name["x"].next_number == 6
    assert again.leading_to("q")


@pytest.mark.parametrize(
    ("kind", "options", "error"),
    [
        ("fan", {}, "type 'fan'"),
        ("fanout", {"durable": True}, "option 'durable'"),
        ("fanout", {"unroutable": "lose"}, "option 'unroutable'"),
        ("fanout", {"unroutable": "alternate"}, "option 'unroutable'"),
        ("fanout", {"unroutable": "drop", "alternate": "y"}, "option 'unroutable'"),
        ("fanout", {"alternate": 7}, "option 'alternate'"),
        ("fanout", {"lifetime": "empty"}, "option 'lifetime'"),
    ],
)
def test_E1_a_wrong_declaration_names_the_field(kind: str, options: dict[str, Any], error: str) -> None:
    with pytest.raises(errors.InvalidRequest, match=error):
        exchange_options.checked(kind, options)


def test_E1_ten_thousand_bindings_are_matched_by_a_look_up() -> None:
    """Counted, not timed: the look-up touches only bindings of the key."""
    trie = Trie()
    for number in range(10_000):
        trie.add(f"region.{number}.#", number)
    touched = []
    real = trie._root.children["region"].children

    class Counting(dict):  # type: ignore[type-arg]
        def get(self, *key: Any) -> Any:
            touched.append(key)
            return super().get(*key)

    trie._root.children["region"].children = Counting(real)
    assert list(trie.match("region.77.temperature")) == [77]
    assert len(touched) < 5
