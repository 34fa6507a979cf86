"""Each command and each event has exactly one function, which stands in one table; its types say what the table says."""

from __future__ import annotations

import json
import typing
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from penstock.broker_core.engine import events as e
from penstock.broker_core.engine.apply.handlers import HANDLERS as APPLY_HANDLERS
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.commands import Command, Stores
from penstock.broker_core.engine.decide.decision import Decision
from penstock.broker_core.engine.decide.effects import effects_of
from penstock.broker_core.engine.decide.handlers import HANDLERS as DECIDE_HANDLERS
from penstock.broker_core.engine.events.codec import Event, decode, encode
from penstock.broker_core.engine.model.state import BrokerState


def kinds(of: type[Any]) -> Iterator[type[Any]]:
    for each in of.__subclasses__():
        if not typing.get_origin(each):
            yield each
            yield from kinds(each)


COMMANDS = [kind for kind in kinds(Command) if kind is not Stores]
EVENTS = list(kinds(Event))


def test_each_command_is_decided_by_one_function_and_each_event_applied_by_one() -> None:
    assert set(DECIDE_HANDLERS) == set(COMMANDS)
    assert set(APPLY_HANDLERS) == set(EVENTS)
    for table in (DECIDE_HANDLERS, APPLY_HANDLERS):
        assert len(set(table.values())) == len(table)


def reply_of(command: type[Command[Any]]) -> Any:
    base = typing.get_original_bases(command)[0] if hasattr(typing, "get_original_bases") else command.__orig_bases__[0]
    return typing.get_args(base)[0]


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.__name__)
def test_what_decides_a_command_takes_it_and_gives_its_reply(kind: type[Command[Any]]) -> None:
    types = typing.get_type_hints(DECIDE_HANDLERS[kind])
    assert types["command"] is kind
    assert types["return"] == Decision[reply_of(kind)]


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
def test_what_applies_an_event_takes_it(kind: type[Event]) -> None:
    function: Callable[..., None] = APPLY_HANDLERS[kind]
    assert typing.get_type_hints(function)["event"] is kind
    assert function.__name__ == "".join(f"_{c.lower()}" if c.isupper() else c for c in kind.__name__).lstrip("_")


def test_the_effects_of_several_events_in_one_are_those_of_its_parts_however_deep() -> None:
    came = [e.CameDue(name, RowSet.single(0), 1) for name in "abc"]
    whole = e.Together((e.Together((came[0], e.Together((came[1],)))), came[2]))
    assert effects_of(BrokerState(), [(whole, None), (came[1], None)]).looks == ("a", "b", "c")


#: Each kind of event in the journal, and the names of its fields there. A field may be added; a name never changes.
PERSISTED = """
acquired queue holder rows lease batch sign
batch.ended lease batch stage time exclude done
batch.planned lease batch
batch.read lease batch query number
block.archived queue number highest_payload first_time last_time outcomes
block.repacked queue_id number lowest_payload highest_payload
bound exchange number binding
came.due queue rows time
copied queue rows target time
delayed queue rows until time
discarded stages write
dropped intervals
enqueued queue first count sizes time traits kept acquired
exchange.declared exchange type options user
exchange.deleted exchange
expired queue rows time
holders.lost rows cause
lease.begun lease queue run epoch timeout up selector
lease.deleted lease
lease.fenced lease epoch
lease.finished lease finished
lease.taken lease epoch timeout up
malformed.found lease batch said
moved queue rows target outcome time reason holder lease error redriven
outcomes.staged stage lease batch epoch said up time
pass.begun queue_id number rows
pass.ended queue_id number version
published stages key time makes_room write attempts sent user
purged queue rows time error
queue.altered queue options
queue.declared queue type options user defaults
queue.deleted queue departs
queue.paused queue paused
read.dropped lease batch series
redriven queue rows time
relocated queue_id rows taken also
retained position
returned queue holder rows cause lease annotations
routed queues count sizes time traits kept
settled queue holder rows outcome time error lease reason
staged stage queue count sizes up traits kept exchange time
staged.relocated position
together parts
unbound exchange numbers
"""


def test_kinds_of_events_and_their_fields_keep_the_names_that_old_journals_have() -> None:
    """An event is written and read under these names, whatever its class calls them."""
    journaled = {kind.kind: kind for kind in EVENTS if kind.journaled}
    assert {line.split()[0] for line in PERSISTED.split("\n") if line} == set(journaled)
    for line in filter(None, PERSISTED.split("\n")):
        kind, *names = line.split()
        event = journaled[kind](*range(len(names))) if kind != "together" else e.Together((e.Discarded([]),))
        body = json.loads(encode(event))
        assert list(body) == ["k", *names]
        if kind not in ("together", "published"):  # whose values are no numbers
            assert decode(encode(event)) == event
