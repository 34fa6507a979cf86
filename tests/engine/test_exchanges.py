"""E1 E2 E3: exchanges, bindings and lifetimes as commands and events; a recovery after each gives the same."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from penstock.broker_core import errors
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine import decide
from penstock.broker_core.engine.columns.attributes import NO_ATTRIBUTES, Attributes, Coded
from penstock.broker_core.engine.columns.rowset import RowSet, as_array
from penstock.broker_core.engine.model.exchange import Exchange
from penstock.broker_core.engine.model.routes import Examined, plan

from .conservation import conserved
from .harness import Engine


class Checked(Engine):
    """An engine that checks after each command that messages are conserved, and that log, snapshot and state agree."""

    def run(self, *commands: c.Command[Any]) -> Any:
        reply = None
        for command in commands:
            ending = decide(self.state, command, c.Now(self.wall, self.up)).effects.may_end
            reply = super().run(command)
            for name in ending:  # as the broker does
                self.run(c.EndNode(name))
            assert all(map(conserved, self.state.queues.values()))
            assert self.recovered().persisted() == self.persisted()
            assert self.from_snapshot().persisted() == self.persisted()
        return reply

    def send(self, exchange: str, key: Any = "", count: int = 1, **how: Any) -> c.Sent:
        needed = plan(self.state.exchanges.by_name, self.state.queues, exchange, key)
        how.setdefault("attributes", dict.fromkeys(needed.rules, NO_ATTRIBUTES))
        return self.run(c.Route(exchange, count, 10, b"payload", key, **how))

    def counts(self) -> dict[str, int]:
        return {name: queue.live for name, queue in self.state.queues.items()}


def engine(*queues: str, **options: Any) -> Checked:
    made = Checked()
    for name in queues:
        made.run(c.DeclareQueue(name, options=options))
    return made


def test_E1_the_same_declaration_changes_nothing_and_another_names_the_field() -> None:
    broker = engine("rest")
    assert broker.run(c.DeclareExchange("x", "topic", {"alternate": "rest"})) is True
    before = len(broker.log)
    assert broker.run(c.DeclareExchange("x", "topic", {"alternate": "rest", "unroutable": "alternate"})) is False
    assert len(broker.log) == before
    for wrong, error in (
        (c.DeclareExchange("x", "fanout", {"alternate": "rest"}), "type 'topic', not 'fanout'"),
        (c.DeclareExchange("x", "topic"), "option 'alternate'"),
        (c.DeclareExchange("rest"), "is a queue"),
        (c.DeclareQueue("x"), "is an exchange"),
        (c.DeclareExchange("a/b"), "'/'"),
        (c.DeclareExchange("y", options={"alternate": "nobody"}), "option 'alternate'"),
        (c.DeclareExchange("y", options={"unroutible": "drop"}), "did you mean 'unroutable'"),
    ):
        with pytest.raises(errors.PenstockError, match=error):
            broker.run(wrong)
    assert len(broker.log) == before


def test_E1_bindings_are_declared_once_and_refused_by_field() -> None:
    broker = engine("q")
    broker.run(c.DeclareExchange("d"), c.DeclareExchange("h", "headers"), c.DeclareExchange("t", "topic"))
    assert broker.run(c.Bind("d", "q", "k")) is True
    assert broker.run(c.Bind("d", "q", "k")) is False
    assert broker.run(c.Bind("d", "q", "k", selector="a = 1")) is True
    assert broker.run(c.Bind("h", "q", arguments={"a": 1, "x-match": "any"})) is True
    for wrong, error in (
        (c.Bind("h", "q", "k"), "key 'k'"),
        (c.Bind("d", "q", arguments={"a": 1}), "arguments"),
        (c.Bind("h", "q", arguments={"x-match": "some"}), "x-match"),
        (c.Bind("h", "q", arguments={"a": [1]}), "argument 'a'"),
        (c.Bind("t", "q", "a." * 64), "64"),
        (c.Bind("d", "q", "k" * 256), "256 characters"),
        (c.Bind("d", "nobody", "k"), "no queue 'nobody'"),
        (c.Bind("nobody", "q", "k"), "no exchange 'nobody'"),
        (c.Unbind("d", "q", "other"), "no binding"),
    ):
        with pytest.raises(errors.PenstockError, match=error):
            broker.run(wrong)
    assert broker.run(c.Unbind("d", "q", "k")) == 2
    (listed,) = broker.run(c.ListExchanges("h"))
    assert listed == {
        "exchange": "h",
        "type": "headers",
        "options": {},
        "bindings": [{"queue": "q", "arguments": {"a": 1, "x-match": "any"}}],
        "messages": 0,
        "refusedMessages": {},
        "droppedMessages": {},
    }


def test_E1_one_event_places_a_payload_in_every_queue_that_is_bound() -> None:
    broker = engine("q", "r", "s")
    broker.run(c.DeclareExchange("x", "topic"), c.Bind("x", "q", "a.*"), c.Bind("x", "r", "#"), c.Bind("x", "r", "a.b"))
    before = len(broker.log)
    keys = Coded(["a.b", "c"], np.array([1, 2, 1]))
    assert broker.send("x", keys, 3) == c.Sent()
    assert len(broker.log) == before + 1
    assert broker.counts() == {"q": 2, "r": 3, "s": 0}
    position = broker.log[-1][1]
    for name, rows in (("q", [0, 2]), ("r", [0, 1, 2])):
        queue = broker.state.queues[name]
        locations = queue.blocks[0].locations(slice(0, len(rows)))
        payload_rows = [
            (int(at) + i) for at, many in zip(locations.payload_row, locations.rows, strict=True) for i in range(int(many))
        ]
        assert set(locations.position.tolist()) == {position}, "all of them are in one record"
        assert payload_rows == rows


def test_E1_sizes_and_attributes_follow_the_messages() -> None:
    broker = engine("q")
    broker.run(c.DeclareQueue("p", "priority"), c.DeclareExchange("x"), c.Bind("x", "q", "k"), c.Bind("x", "p", "k"))
    needed = plan(broker.state.exchanges.by_name, broker.state.queues, "x", "k")
    attributes = Attributes(priority=np.array([10, 0, 1], np.uint8))
    keys = Coded(["k"], np.array([1, 0, 1]))
    broker.run(c.Route("x", 3, np.array([5, 7, 9]), b"", keys, attributes=dict.fromkeys(needed.rules, attributes)))
    holder = broker.run(c.Subscribe("p"))
    first = broker.run(c.Acquire("p", holder, 1)).rows
    assert first.sequences().tolist() == [0]
    assert broker.state.queues["p"].bytes == broker.state.queues["q"].bytes == 14
    assert broker.run(c.Acquire("p", holder, 1)).rows.sequences().tolist() == [1]


def test_E3_unroutable_messages_are_refused_dropped_or_go_to_the_alternate() -> None:
    broker = engine("q", "rest")
    broker.run(c.DeclareExchange("refusing"), c.Bind("refusing", "q", "k"))
    sent = broker.send("refusing", Coded(["k"], np.array([0, 1])), 2)
    assert (sent.unroutable.tolist(), broker.counts()) == ([0], {"q": 1, "rest": 0})
    before = len(broker.log)
    assert broker.send("refusing", "other").unroutable == slice(0, 1)
    broker.run(c.DeclareExchange("dropping", options={"unroutable": "drop"}))
    before = len(broker.log)
    assert broker.send("dropping", "other", 2) == c.Sent(dropped=2)
    assert len(broker.log) == before, "unroutable messages are not stored"
    broker.run(c.DeclareExchange("passing", options={"alternate": "rest"}))
    assert broker.send("passing", "other", 2) == c.Sent()
    assert broker.counts() == {"q": 1, "rest": 2}


def test_E1_what_was_examined_before_the_bindings_changed_is_examined_again() -> None:
    broker = engine("q", "r")
    broker.run(c.DeclareExchange("x", "fanout"), c.Bind("x", "q", selector="a = 1"))
    ((_, version, inside),) = plan(broker.state.exchanges.by_name, broker.state.queues, "x", "").inside
    seen = {"x": Examined(version, {inside[0][0]: np.array([1])})}
    assert broker.send("x", count=2, examined=seen).unroutable.tolist() == [0]
    broker.run(c.Bind("x", "r", selector="b = 1"))
    before = len(broker.log)
    assert broker.send("x", count=2, examined=seen).stale
    assert broker.send("x", count=2, attributes={}).stale
    assert len(broker.log) == before


def test_E1_a_deleted_queue_or_exchange_takes_its_bindings_along() -> None:
    broker = engine("q", "r")
    broker.run(c.DeclareExchange("x", "fanout"), c.Bind("x", "q"), c.Bind("x", "r"))
    broker.run(c.DeleteQueue("q"))
    broker.send("x")
    assert broker.counts() == {"r": 1}
    broker.run(c.DeleteExchange("x"))
    with pytest.raises(errors.NotFound, match="no exchange 'x'"):
        broker.run(c.Route("x", 1, 1))
    broker.run(c.DeclareExchange("x", "fanout"))
    assert broker.run(c.ListExchanges("x"))[0]["bindings"] == []


def test_E2_a_queue_ends_with_the_link_that_made_it_and_its_messages_with_it() -> None:
    broker = engine("q", lifetime="link")
    link = broker.run(c.OpenLink("q", makes=True, owner="me"))
    other_link = broker.run(c.OpenLink("q"))
    with pytest.raises(errors.InUse, match="another connection"):
        broker.run(c.OpenLink("q", receives=True, owner="you"))
    with pytest.raises(errors.InUse, match="another connection"):
        broker.advance("lease", epoch=None, finished=0)
    broker.run(c.OpenLink("q", receives=True, owner="me"), c.Enqueue("q", 2, 10), c.CloseLink("q", other_link))
    assert broker.counts() == {"q": 2}
    broker.run(c.CloseLink("q", link))
    assert broker.counts() == {}
    with pytest.raises(errors.NotFound):
        broker.run(c.Enqueue("q", 1, 10))
    broker.run(c.CloseLink("q", link))  # too late, and without effect


@pytest.mark.parametrize("lifetime", ["link", "unused"])
def test_E2_of_an_exchange_that_a_link_made_its_connection_alone_receives(lifetime: str) -> None:
    broker = Checked()
    broker.run(c.DeclareExchange("x", "fanout", {"lifetime": lifetime}))
    maker = broker.run(c.OpenLink("x", makes=True, owner="me"))
    with pytest.raises(errors.InUse, match="exchange 'x' belongs to another connection"):
        broker.run(c.OpenLink("x", receives=True, owner="you"))
    links = [broker.run(c.OpenLink("x", receives=True, owner="me")), broker.run(c.OpenLink("x", owner="you"))]
    for link in (*links, maker):
        broker.run(c.CloseLink("x", link))
    assert not broker.state.exchanges.by_name


def test_E2_links_of_one_user_make_so_many_nodes_and_no_more() -> None:
    """The limit counts existing queues and exchanges together; nodes that no link created are not counted."""
    broker, alice = engine("mine"), c.Maker("alice", 2)
    broker.run(c.DeclareQueue("q", options={"lifetime": "link"}, maker=alice), c.DeclareExchange("x", maker=alice))
    before = len(broker.log)
    for command in (c.DeclareQueue("r", maker=alice), c.DeclareExchange("y", maker=alice)):
        with pytest.raises(errors.ResourceLimit, match="user 'alice' has made 2 queues and exchanges"):
            broker.run(command)
    assert len(broker.log) == before
    assert broker.run(c.DeclareQueue("q", options={"lifetime": "link"}, maker=alice)) is False
    broker.run(c.DeclareQueue("theirs", maker=c.Maker("bob", 1)), c.DeleteQueue("q"), c.DeclareQueue("r", maker=alice))
    for life in (broker, broker.recovered(), broker.from_snapshot()):
        assert life.state.made == {"alice": 2, "bob": 1}
    broker.run(c.DeleteExchange("x"), c.DeleteQueue("r"), c.DeleteQueue("theirs"))
    assert broker.state.made == {}
    again = broker.recovered()
    assert again.state.made == {}


def test_E2_an_unused_queue_ends_with_its_last_link_lease_or_subscription() -> None:
    broker = engine("q", lifetime="unused")
    holder, link = broker.run(c.Subscribe("q")), broker.run(c.OpenLink("q"))
    broker.run(c.Unsubscribe("q", holder), c.Enqueue("q", 1, 10))
    broker.advance("lease", epoch=None, finished=0)
    broker.run(c.CloseLink("q", link))
    assert broker.counts() == {"q": 1}, "the lease uses it"
    broker.run(c.ReleaseLease("lease", settle=True), c.DeleteLease("lease"))
    assert broker.counts() == {}


@pytest.mark.parametrize("lifetime", ["empty", "unusedOrEmpty"])
def test_E2_a_queue_that_waits_for_its_last_message(lifetime: str) -> None:
    broker = engine("q", lifetime=lifetime)
    link = broker.run(c.OpenLink("q", makes=True))
    broker.run(c.Enqueue("q", 2, 10), c.CloseLink("q", link))
    holder = broker.run(c.Subscribe("q"))
    rows = broker.run(c.Acquire("q", holder, 2)).rows
    assert broker.counts() == {"q": 2}
    broker.run(c.Settle("q", holder, rows))
    assert broker.counts() == ({} if lifetime == "empty" else {"q": 0})
    if lifetime == "unusedOrEmpty":
        broker.run(c.Unsubscribe("q", holder))
        assert broker.counts() == {}


def test_E2_a_restart_ends_what_lives_by_links() -> None:
    broker = Checked()
    for lifetime in ("permanent", "link", "unused", "empty", "unusedOrEmpty"):
        broker.run(c.DeclareQueue(lifetime, options={"lifetime": lifetime}), c.Enqueue(lifetime, 1, 10))
    broker.run(c.DeclareQueue("empty2", options={"lifetime": "empty"}))
    broker.run(c.DeclareExchange("x", "fanout", {"lifetime": "link"}), c.DeclareExchange("y", "fanout", {"lifetime": "unused"}))
    broker.run(c.Bind("y", "link"))
    again = broker.recovered()
    again.run(c.StartBroker())
    assert sorted(again.state.queues) == ["empty", "permanent", "unusedOrEmpty"]
    assert not again.state.exchanges.by_name


def test_E2_an_exchange_ends_with_its_last_binding() -> None:
    broker = engine("q", "r")
    broker.run(c.DeclareExchange("x", "fanout", {"lifetime": "unused"}), c.Bind("x", "q"), c.Bind("x", "r"))
    broker.run(c.Unbind("x", "q"))
    assert broker.state.exchanges.by_name
    broker.run(c.DeleteQueue("r"))
    assert not broker.state.exchanges.by_name


def test_E2_only_what_can_have_ended_anything_is_looked_at() -> None:
    broker = engine("q", lifetime="unused")
    broker.run(c.DeclareExchange("x", "fanout"), c.Bind("x", "q"))
    link = broker.run(c.OpenLink("q"))
    for command, names in (
        (c.Enqueue("q", 1, 10), ()),
        (c.Purge("q"), ()),
        (c.CloseLink("q", link), ("q",)),
        (c.DeleteQueue("q"), ("x",)),
        (c.Unbind("x", "q"), ("x",)),
    ):
        assert decide(broker.state, command, c.Now(0, 0)).effects.may_end == names, command


def test_E1_c10_a_queue_that_is_made_anew_gets_nothing_that_was_staged_by_its_former_bindings() -> None:
    """For example a durable subscription with a new filter, while a transaction has a message for the old one."""
    broker = engine("q", "r")
    broker.run(c.DeclareExchange("x", "topic"), c.Bind("x", "q", "a"), c.Bind("x", "r", "#"))
    broker.send("x", "a", 2, stage="s")
    broker.run(c.DeleteQueue("q"), c.DeclareQueue("q"), c.Bind("x", "q", "b"))
    assert (broker.state.queues["q"].staged.messages, broker.state.queues["r"].staged.messages) == (0, 2)
    broker.run(c.Publish(["s"]))
    assert (broker.counts(), broker.state.staged_bytes) == ({"q": 0, "r": 2}, 0)


def test_E1_stages_go_through_exchanges_by_the_bindings_of_that_moment() -> None:
    broker = engine("q", "r", "s")
    broker.run(c.DeclareExchange("x", "topic"), c.Bind("x", "q", "a"), c.Bind("x", "r", "#"))
    keys = Coded(["a", "b"], np.array([1, 2, 1]))
    broker.send("x", keys, 3, stage="one", whole=True)
    assert broker.counts() == {"q": 0, "r": 0, "s": 0}
    broker.run(c.Bind("x", "s", "#"), c.Unbind("x", "q"))
    broker.run(c.Publish(["one"]))
    assert broker.counts() == {"q": 2, "r": 3, "s": 0}
    locations = broker.state.queues["q"].blocks[0].locations(slice(0, 2))
    assert locations.payload_row.tolist() == [0, 2]
    broker.send("x", "b", 1, stage="two", whole=True)
    broker.run(c.DeleteQueue("r"), c.Publish(["two"]))
    assert broker.counts() == {"q": 2, "s": 1}, "the staged messages of the deleted queue are gone"


def test_E3_who_wants_all_or_nothing_gets_an_error_that_names_the_message() -> None:
    broker = engine("q")
    broker.run(c.DeclareExchange("x"), c.Bind("x", "q", "k"))
    before = len(broker.log)
    for how in ({}, {"stage": "s"}):
        with pytest.raises(errors.NotFound, match=r"routing key 'other' .*1 of 3, the first in row 1"):
            broker.send("x", Coded(["k", "other"], np.array([1, 2, 1])), 3, whole=True, **how)
    assert len(broker.log) == before


def test_E1_a_key_too_long_for_any_binding_matches_nothing() -> None:
    broker = engine("q")
    broker.run(c.DeclareExchange("x", "topic"), c.Bind("x", "q", "#"))
    assert broker.send("x", "k" * 255).unroutable == slice(0, 0)
    assert broker.send("x", "k" * 256).unroutable == slice(0, 1)


def test_E1_a_message_is_refused_only_when_every_queue_refuses_it() -> None:
    broker = engine("open")
    broker.run(c.DeclareQueue("small", options={"maxMessages": 2, "overflow": "reject"}))
    broker.run(c.DeclareQueue("ring", options={"maxMessages": 2, "overflow": "ring"}))
    broker.run(c.DeclareQueue("blocking", options={"maxMessages": 2}))
    broker.run(c.DeclareExchange("x", "topic"))
    for name in ("small", "ring", "blocking"):
        broker.run(c.Bind("x", name, "a"), c.Bind("x", name, f"only.{name}"))
    broker.run(c.Bind("x", "open", "a"))
    assert as_array(broker.send("x", "a", 3).refused).tolist() == [], "one of the queues accepted each message"
    assert broker.counts() == {"open": 3, "small": 2, "ring": 2, "blocking": 0}
    sent = broker.send("x", "only.small", 2)
    assert (as_array(sent.refused).tolist(), type(sent.error)) == ([0, 1], errors.QueueFull)
    assert broker.send("x", "only.ring", 2).error is None
    assert as_array(broker.send("x", "only.blocking", 3).refused).tolist() == [0, 1, 2]
    assert as_array(broker.send("x", "only.blocking", 2).refused).tolist() == []
    before = len(broker.log)
    with pytest.raises(errors.QueueFull):
        broker.send("x", "only.small", 1, whole=True)
    with pytest.raises(errors.QueueFull):
        broker.send("x", "a", 1, whole=True)  # the open queue has room, but a blocking one is full
    assert len(broker.log) == before


@pytest.mark.parametrize("overflow", ["block", "reject", "ring"])
def test_E1_a_whole_block_is_refused_if_one_queue_refuses_a_message(overflow: str) -> None:
    broker = engine("open")
    broker.run(c.DeclareQueue("small", options={"maxMessages": 2, "overflow": overflow}), c.DeclareExchange("x", "fanout"))
    broker.run(c.Bind("x", "open"), c.Bind("x", "small"))
    before = len(broker.log)
    with pytest.raises(errors.QueueFull, match=r"'small' .*30 bytes and never fit together: send fewer at a time") as refused:
        broker.send("x", "", 3, whole=True)
    assert len(broker.log) == before
    broker.run(c.CountRefused("x", refused.value, 3))
    assert (broker.state.exchanges.by_name["x"].losses, broker.state.queues["small"].losses) == ({"full": 3}, {"full": 3})
    broker.send("x", "", 2, whole=True)
    assert broker.counts() == {"open": 2, "small": 2}


def test_E1_a_binding_may_have_a_name() -> None:
    broker = engine("q", "r")
    broker.run(c.DeclareExchange("x", "fanout"))
    one = c.Bind("x", "q", selector="a = 1", name="one", definition="A=1")
    broker.run(one, c.Bind("x", "q", selector="a = 1", name="two"), c.Bind("x", "r", name="one"), c.Bind("x", "q"))
    with pytest.raises(errors.AlreadyExists, match="has a binding 'one' to 'q'"):
        broker.run(one)
    for name in ("", "a\nb", "x" * 300):
        with pytest.raises(errors.InvalidRequest, match="a name has 1 to 255"):
            broker.run(c.Bind("x", "q", name=name))
    with pytest.raises(errors.InvalidRequest, match="at most 16384 are allowed"):
        broker.run(c.Bind("x", "q", name="long", definition="x" * 16_385))
    bindings = broker.state.exchanges.by_name["x"].bindings_of("q")
    assert [(binding.name, binding.definition) for binding in bindings.values()] == [("one", "A=1"), ("two", None), (None, None)]
    assert (
        Exchange.from_json(broker.state.exchanges.by_name["x"].to_json()).bindings == broker.state.exchanges.by_name["x"].bindings
    )
    assert broker.run(c.Unbind("x", "q", number=next(iter(bindings)))) == 1
    assert [binding.name for binding in broker.state.exchanges.by_name["x"].bindings_of("q").values()] == ["two", None]


def test_E1_duplicates_are_known_in_each_queue() -> None:
    broker = engine("plain")
    broker.run(c.DeclareQueue("once", options={"duplicateWindow": 10}), c.DeclareExchange("x", "fanout"))
    broker.run(c.Bind("x", "plain"), c.Bind("x", "once"))
    needed = plan(broker.state.exchanges.by_name, broker.state.queues, "x", "").rules
    ids = Attributes(ids=np.array([b"1" * 16, b"2" * 16, b"1" * 16], "S16"))
    attributes = {about: ids if rules.duplicate_window else NO_ATTRIBUTES for about, rules in needed.items()}
    assert broker.send("x", count=3, attributes=attributes) == c.Sent()
    assert broker.state.queues["once"].losses == {"duplicate": 1}
    assert broker.counts() == {"plain": 3, "once": 2}


def test_E2_what_no_link_made_ends_with_none() -> None:
    broker = engine("q", lifetime="link")
    broker.run(c.DeclareExchange("x", options={"lifetime": "link"}))
    for node in ("q", "x"):
        broker.run(c.CloseLink(node, broker.run(c.OpenLink(node))))
    holder = broker.run(c.Subscribe("q"))
    broker.run(c.Unsubscribe("q", holder))
    assert (list(broker.state.queues), list(broker.state.exchanges.by_name)) == (["q"], ["x"])


def test_E2_a_queue_whose_last_message_is_moved_or_purged_ends() -> None:
    broker = engine("q", "r", lifetime="empty")
    broker.run(c.DeclareQueue("target"))
    for name in ("q", "r"):
        link = broker.run(c.OpenLink(name, makes=True))
        broker.run(c.Enqueue(name, 2, 10), c.CloseLink(name, link))
    broker.run(c.Move("q", "target"), c.Purge("r"))
    assert broker.counts() == {"target": 2}


@pytest.mark.parametrize("dies", [False, True])
def test_E2_Q17_a_value_that_is_replaced_as_it_comes_back_was_the_last_message(dies: bool) -> None:
    """Its newer value was settled before, so no other command checks whether the queue is empty."""
    broker = Checked()
    broker.run(c.DeclareQueue("q", "lastvalue", {"key": "subject", "lifetime": "empty"}))
    link, holders = broker.run(c.OpenLink("q", makes=True)), [broker.run(c.Subscribe("q")) for _ in range(2)]
    for holder in holders:
        broker.run(c.Enqueue("q", 1, 10, attributes=Attributes(key=Coded(["k"], np.array([1])))), c.Acquire("q", holder, 1))
    broker.run(c.CloseLink("q", link), c.Settle("q", holders[1], RowSet.single(1)))
    assert broker.counts() == {"q": 1}
    if dies:
        broker = Checked(broker.recovered().state, broker.log)
        broker.run(c.StartBroker())
    else:
        broker.run(c.Release("q", holders[0], RowSet.single(0)))
    assert broker.counts() == {}
