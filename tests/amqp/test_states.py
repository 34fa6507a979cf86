"""The tables: every entry leads to an existing state, every state is reachable, a missing entry is an error with a condition."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker_core.amqp import states
from penstock.broker_core.amqp.errors import LocalProtocolError, RemoteProtocolError
from penstock.broker_core.amqp.states import CONNECTION, LINK, SESSION, ConnectionState, LinkState, SessionState, advance

MACHINES: list[tuple[Any, Any, Any]] = [
    (CONNECTION, ConnectionState.START, ConnectionState.END),
    (SESSION, SessionState.UNMAPPED, SessionState.UNMAPPED),
    (LINK, LinkState.DETACHED, LinkState.DETACHED),
]


@pytest.mark.parametrize(("table", "start", "end"), MACHINES)
def test_every_state_is_reachable_and_leads_home(table: Any, start: Any, end: Any) -> None:
    assert set(table) == set(type(start))
    seen, todo = {start}, [start]
    while todo:
        for state in table[todo.pop()].values():
            if state not in seen:
                seen.add(state)
                todo.append(state)
    assert seen == set(type(start))
    for state in table:
        reach, todo = set(), [state]
        while todo:
            for following in table[todo.pop()].values():
                if following not in reach:
                    reach.add(following)
                    todo.append(following)
        assert end in reach or state is end


@pytest.mark.parametrize(("table", "start", "end"), MACHINES)
def test_missing_entries_are_errors(table: Any, start: Any, end: Any) -> None:
    actions = {action for entries in table.values() for action in entries}
    for state in table:
        for action in actions - set(table[state]):
            with pytest.raises(LocalProtocolError if action[0] == "s" else RemoteProtocolError) as caught:
                advance(table, state, action)
            if action[0] == "r":
                expected = states._CONDITIONS.get((state, action), ("amqp:illegal-state", None))[0]
                assert caught.value.condition == expected


def test_nothing_is_sent_after_a_close() -> None:
    for state in (ConnectionState.CLOSE_SENT, ConnectionState.DISCARDING, ConnectionState.END):
        assert not [a for a in CONNECTION[state] if a.startswith("s:") and a != "s:error"]
