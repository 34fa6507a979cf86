"""Dynamic nodes and their lifetimes: 3.5.3, 3.5.4, 3.5.10 to 3.5.13 (E2)."""

from __future__ import annotations

from typing import Any

from penstock.broker_core.amqp.performatives import Accepted, Attach, Detach, Disposition, End, Flow, Source, Target
from penstock.broker_core.amqp.types import Described, ULong

from .frames import detach, flow, receives, says, sends, symbol, transfer
from .harness import Script, Stage

ON_CLOSE, ON_NO_LINKS, ON_NO_MESSAGES, ON_NO_LINKS_OR_MESSAGES = range(0x2B, 0x2F)


def dynamic_node(policy: int | None = None) -> dict[str, Any]:
    """Build the fields of a terminus that requests a dynamic node."""
    if policy is None:
        return {"dynamic": True}
    return {"dynamic": True, "dynamic_node_properties": {symbol("lifetime-policy"): Described(ULong(policy), [])}}


def _make(a: Script, policy: int | None = None, handle: int = 0, **fields: Any) -> str:
    """Create a node by a sender's attach, as JMS does; return its name."""
    a.send(sends(handle=handle, name=f"creator {handle}", target=Target(**dynamic_node(policy), **fields)))
    answer = a.expect(Attach)
    a.expect(Flow)
    assert isinstance(answer.target, Target)
    assert isinstance(answer.target.address, str)
    return answer.target.address


def _refused(a: Script, attach: Attach, condition: str) -> None:
    a.send(attach)
    a.expect(Attach)
    refusal = a.expect(Detach, closed=True)
    assert refusal.error is not None
    assert refusal.error.condition == condition, refusal.error
    a.send(detach(attach.handle))


def _closes(maker: Script, peer: Script) -> None:
    """Close the link that created a node: it ends without an error, other links to the node end with one."""
    maker.send(detach(0))
    maker.expect(Detach, handle=0, error=None)
    gone = maker.expect(Detach, handle=1)
    assert gone.error is not None
    assert gone.error.condition == "amqp:resource-deleted"
    peer.expect(Detach, handle=0)


def a_temporary_queue_ends_with_the_link_that_made_it(s: Stage) -> None:
    a = s.script("A").usual()
    name = _make(a, ON_CLOSE, capabilities=(symbol("temporary-queue"),))
    s.note("all clients may send to the node, only its connection receives from it")
    b = s.script("B", container_id="other").usual()
    b.sender(name, source=Source(address="b"), name="replies")
    b.send(transfer(0))
    b.expect(Disposition, state=Accepted())
    _refused(b, receives(name, 1, name="thief"), "amqp:resource-locked")
    a.receiver(name, 1, credit=5, name="mine")
    a.expect_messages(b"m0")
    s.nodes()
    s.note("its creator detaches: the node is deleted, and other links to it end")
    _closes(a, b)
    b.send(detach(0))
    _refused(b, sends(name, 2, name="late"), "amqp:not-found")
    s.nodes()


def a_temporary_topic_is_its_connections_own(s: Stage) -> None:
    a = s.script("A", container_id="A").usual()
    name = _make(a, ON_CLOSE, capabilities=(symbol("temporary-topic"),))
    b = s.script("B", container_id="B").usual()
    s.note("all clients may send to the topic; only its connection subscribes, whether alone, shared or durably")
    b.sender(name, source=Source(address="b"), name="news")
    a.send(receives(handle=1, name="all|1", source=_all(name)), flow(1, 5))
    a.expect(Attach)
    _refused(b, receives(name, 1, name="alone"), "amqp:resource-locked")
    _refused(b, receives(handle=1, name="all", source=_all(name)), "amqp:resource-locked")
    _refused(
        b,
        receives(handle=1, name="for ever", source=Source(address=name, durable=2, expiry_policy="never")),
        "amqp:resource-locked",
    )
    b.send(transfer(0))
    b.expect(Disposition, state=Accepted())
    a.expect_messages(b"m0")
    s.nodes()
    a.send(detach(0))
    a.expect(Detach, handle=0)
    a.expect(Detach, handle=1)
    b.expect(Detach, handle=0)
    s.nodes()


def _all(name: str) -> Source:
    """Build the source of a subscription that all containers share."""
    return Source(address=name, capabilities=(symbol("shared"), symbol("global")))


def a_dynamic_source_is_received_from(s: Stage) -> None:
    a = s.script().usual()
    a.send(receives(source=Source(**dynamic_node()), name="replies"), flow(0, 5))
    answer = a.expect(Attach)
    assert isinstance(answer.source, Source)
    a.sender(answer.source.address, 1, name="to it")
    a.send(transfer(0, handle=1))
    a.expect(Disposition, state=Accepted())
    a.expect_messages(b"m0")
    s.nodes()
    s.note("the end of the session ends its links and deletes the node")
    a.send(End())
    a.expect(End)
    s.nodes()


def a_plain_dynamic_node_is_everybodys(s: Stage) -> None:
    s.note("neither a temporary queue nor a temporary topic: rights decide about its receivers")
    a = s.script("A", container_id="A").usual()
    name = _make(a)
    b = s.script("B", container_id="B").usual()
    b.receiver(name, 0, credit=5, name="of another connection")
    a.send(transfer(0))
    a.expect(Disposition, state=Accepted())
    b.expect_messages(b"m0")
    s.note("likewise a dynamic source, and a topic that is not temporary")
    a.send(receives(handle=1, source=Source(**dynamic_node()), name="a source"))
    source = a.expect(Attach).source
    assert isinstance(source, Source)
    b.receiver(source.address, 1, credit=5, name="beside it")
    topic = _make(a, handle=2, capabilities=(symbol("topic"),))
    b.receiver(topic, 2, credit=5, name="of the topic")
    a.send(transfer(1, handle=2))
    a.expect(Disposition, state=Accepted())
    b.expect_messages(b"m1")
    s.note("but a source with the capability temporary-queue belongs to its connection")
    own = Source(**dynamic_node(), capabilities=(symbol("temporary-queue"),))
    a.send(receives(handle=3, source=own, name="an own source"))
    source = a.expect(Attach).source
    assert isinstance(source, Source)
    assert source.capabilities == (symbol("temporary-queue"),)
    _refused(b, receives(source.address, 3, name="thief"), "amqp:resource-locked")


def a_dynamic_source_that_is_a_temporary_topic(s: Stage) -> None:
    a = s.script("A", container_id="A").usual()
    source = Source(**dynamic_node(ON_CLOSE), capabilities=(symbol("temporary-topic"),))
    a.send(receives(source=source, name="news"), flow(0, 5))
    made = a.expect(Attach).source
    assert isinstance(made, Source)
    assert made.capabilities == (symbol("temporary-topic"),)
    s.note("all clients may publish to the topic, only its connection subscribes, and each subscription gets a copy")
    a.receiver(made.address, 1, credit=5, name="also mine")
    b = s.script("B", container_id="B").usual()
    b.sender(made.address, name="publisher", target=Target(address=made.address, capabilities=(symbol("temporary-topic"),)))
    b.send(transfer(0))
    b.expect(Disposition, state=Accepted())
    a.expect_messages(b"m0", b"m0")
    _refused(b, receives(made.address, 1, name="thief"), "amqp:resource-locked")
    s.nodes()
    s.note("its link is closed: the topic is deleted, and its other links end with an error")
    _closes(a, b)
    s.nodes()


def a_lost_connection_takes_its_temporary_nodes_along(s: Stage) -> None:
    a = s.script("A").usual()
    _make(a)
    _make(a, ON_CLOSE, 1, capabilities=(symbol("temporary-topic"),))
    s.nodes()
    a.drop()
    s.until(lambda: len(s.service.state.queues) == 1, "the queue is gone")
    s.nodes()


def a_node_that_lives_while_it_has_links(s: Stage) -> None:
    a = s.script("A").usual()
    name = _make(a, ON_NO_LINKS)
    b = s.script("B", container_id="other").usual()
    b.sender(name, name="to it")
    s.note("its creator is detached, another link remains")
    a.send(detach(0))
    a.expect(Detach)
    s.nodes()
    s.note("the last link ends: the node is deleted")
    b.send(detach(0))
    b.expect(Detach)
    s.nodes()


def a_node_that_lives_while_it_has_messages(s: Stage) -> None:
    a = s.script().usual()
    name = _make(a, ON_NO_MESSAGES)
    a.send(transfer(0))
    a.expect(Disposition)
    a.send(detach(0))
    a.expect(Detach)
    s.nodes()
    s.note("the last message is settled")
    a.receiver(name, 1, credit=1, name="the last reader")
    a.expect_messages(b"m0")
    a.send(says(Accepted(), 0))
    gone = a.expect(Detach)
    assert gone.error is not None
    a.send(detach(1))
    s.nodes()


def a_node_that_lives_while_it_has_either(s: Stage) -> None:
    a = s.script().usual()
    name = _make(a, ON_NO_LINKS_OR_MESSAGES)
    a.send(transfer(0))
    a.expect(Disposition)
    a.send(detach(0))
    a.expect(Detach)
    s.note("no link, but a message")
    s.nodes()
    a.receiver(name, 1, credit=1, name="the last reader")
    a.expect_messages(b"m0")
    a.send(says(Accepted(), 0))
    s.note("no message, but a link")
    s.nodes()
    a.send(detach(1))
    a.expect(Detach)
    s.nodes()


SCENARIOS = [
    a_temporary_queue_ends_with_the_link_that_made_it,
    a_temporary_topic_is_its_connections_own,
    a_dynamic_source_is_received_from,
    a_plain_dynamic_node_is_everybodys,
    a_dynamic_source_that_is_a_temporary_topic,
    a_lost_connection_takes_its_temporary_nodes_along,
    a_node_that_lives_while_it_has_links,
    a_node_that_lives_while_it_has_messages,
    a_node_that_lives_while_it_has_either,
]
