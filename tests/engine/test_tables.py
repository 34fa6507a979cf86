"""Each command is decided by one function, and each event has its own methods; the form of events in the journal."""

from __future__ import annotations

import json
import typing
from collections.abc import Iterator
from typing import Any

import pytest

from penstock.broker_core.engine import events as e
from penstock.broker_core.engine.columns.rowset import RowSet
from penstock.broker_core.engine.commands import Command, Stores
from penstock.broker_core.engine.decide.decision import HANDLERS, Decision
from penstock.broker_core.engine.decide.handlers import effects_of
from penstock.broker_core.engine.events.codec import decode, encode
from penstock.broker_core.engine.events.event import KINDS, Event
from penstock.broker_core.engine.model.state import BrokerState


def kinds(of: type[Any]) -> Iterator[type[Any]]:
    for subclass in of.__subclasses__():
        if not typing.get_origin(subclass):
            yield subclass
            yield from kinds(subclass)


COMMANDS = [kind for kind in kinds(Command) if kind is not Stores]
EVENTS = list(kinds(Event))


def test_each_command_is_decided_by_one_function_and_each_event_applied_by_one() -> None:
    assert set(HANDLERS) == set(COMMANDS)
    assert len(set(HANDLERS.values())) == len(HANDLERS)
    assert all("apply" in vars(kind) for kind in EVENTS)
    assert len({kind.kind for kind in EVENTS}) == len(EVENTS)


def reply_of(command: type[Command[Any]]) -> Any:
    base = typing.get_original_bases(command)[0] if hasattr(typing, "get_original_bases") else command.__orig_bases__[0]
    return typing.get_args(base)[0]


@pytest.mark.parametrize("kind", COMMANDS, ids=lambda kind: kind.__name__)
def test_what_decides_a_command_takes_it_and_gives_its_reply(kind: type[Command[Any]]) -> None:
    types = typing.get_type_hints(HANDLERS[kind])
    assert types["command"] is kind
    assert types["return"] == Decision[reply_of(kind)]


def test_the_effects_of_several_events_in_one_are_those_of_its_parts_however_deep() -> None:
    came = [e.CameDue(name, RowSet.single(0), 1) for name in "abc"]
    whole = e.Together((e.Together((came[0], e.Together((came[1],)))), came[2]))
    assert effects_of(BrokerState(), [(whole, None), (came[1], None)]).wakes == ("a", "b", "c")


#: Each kind of event in the journal, and the names of its fields there. A field may be added; a name never changes.
PERSISTED = """
acquired           queue holder rows lease batch sign
annotated          queue rows annotations
batch.ended        lease batch ended_as time exclude done
batch.planned      lease batch
batch.read         lease batch query number name
block.packed       queue number highest_payload first_time last_time outcomes
block.repacked     queue_id number lowest_payload highest_payload
bound              exchange number binding
came.due           queue rows time
copied             queue rows target time
delayed            queue rows until time
discarded          stages write
dropped            intervals
enqueued           queue first count sizes time attributes payload_rows acquired
exchange.declared  exchange type options user
exchange.deleted   exchange
expired            queue rows time
group.state        queue group time state
holders.lost       rows cause
lease.begun        lease queue run epoch timeout up selector
lease.deleted      lease
lease.fenced       lease epoch
lease.finished     lease finished
lease.taken        lease epoch timeout up
malformed.found    lease batch outcomes
moved              queue rows target outcome time reason holder lease error redriven taker
outcomes.staged    stage lease batch epoch outcomes time
published          stages key time write attempts sent user elsewhere
purged             queue rows time error taker
queue.altered      queue options
queue.declared     queue type options user
queue.deleted      queue departs
queue.paused       queue paused
read.dropped       lease batch series
recording.begun    queue_id number rows
recording.ended    queue_id number version
redriven           queue rows time taker
relocated          queue_id rows payload_rows also
returned           queue holder rows cause lease annotations time taker error
routed             queues count sizes time attributes payload_rows
settled            queue holder rows outcome time error lease reason taker
staged             stage queue count sizes time attributes payload_rows exchange
staged.relocated   position
together           parts
unbound            exchange numbers
"""


def test_kinds_of_events_and_their_fields_keep_their_names_in_the_journal() -> None:
    assert {line.split()[0] for line in PERSISTED.split("\n") if line} == set(KINDS)
    for line in filter(None, PERSISTED.split("\n")):
        kind, *names = line.split()
        event = KINDS[kind](*range(len(names))) if kind != "together" else e.Together((e.Discarded([]),))
        body = json.loads(encode(event))
        assert list(body) == ["k", *names]
        if kind not in ("together", "published"):  # their values are not numbers
            assert decode(encode(event)) == event
