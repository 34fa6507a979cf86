"""Clients send through exchanges: addresses EXCHANGE/KEY and EXCHANGE, and the anonymous terminus to both (E1 E3 E4)."""

from __future__ import annotations

from penstock.broker_core.amqp.performatives import Accepted, Attach, Detach, Disposition, Properties, Rejected, Released, Target
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.model.policies import Policies, Policy

from .frames import detach, message, receives, sends, transfer
from .harness import Scenario, Stage


def _bound(s: Stage, exchange: str, kind: str, *bindings: c.Bind, **options: str) -> None:
    s.exchange(exchange, kind, **options)
    for binding in bindings:
        s.service.submit(binding)


def _says(subject: str | None = None, to: str | None = None, **headers: str) -> bytes:
    return message(b"m", properties=Properties(subject=subject, to=to), application_properties=headers or None)


def a_target_with_a_routing_key(s: Stage) -> None:
    s.declare("r")
    _bound(s, "x", "topic", c.Bind("x", "q", "eu.*"), c.Bind("x", "r", "#.new"), unroutable="refuse")
    a = s.script().usual()
    for handle, key in enumerate(("eu.new", "eu.old", "us.old")):
        a.sender(f"x/{key}", handle)
    a.send(transfer(0), transfer(1, handle=1), transfer(2))
    a.expect(Disposition, first=0, state=Accepted())
    a.expect(Disposition, first=2, state=Accepted())
    a.expect(Disposition, first=1, state=Accepted())
    s.show("q", "r")
    s.note("no queue is bound: an unsettled message is released, a settled one is dropped; the link stays")
    a.send(transfer(3, handle=2))
    a.expect(Disposition, first=3, settled=True, state=Released())
    a.send(transfer(4, handle=2, settled=True), transfer(5, handle=2))
    a.expect(Disposition, first=5, state=Released())
    s.show("q", "r")


def a_target_without_one_goes_by_the_subject(s: Stage) -> None:
    s.declare("r", "rest")
    _bound(s, "x", "direct", c.Bind("x", "q", "red"), c.Bind("x", "r", "red"), c.Bind("x", "r", "blue"))
    _bound(s, "y", "direct", c.Bind("y", "q", "red"), unroutable="alternate", alternate="rest")
    a = s.script().usual()
    a.sender("x")
    a.send(transfer(0, _says("red")), transfer(1, _says("blue")), transfer(2, _says()), transfer(3, _says("green")))
    s.note("the exchange drops unroutable messages")
    a.expect(Disposition, first=0, last=3, state=Accepted())
    s.show("q", "r")
    a.sender("y", 1)
    a.send(transfer(4, _says("red"), handle=1), transfer(5, _says(), handle=1), transfer(6, b"junk", handle=1))
    a.expect(Disposition, first=4, last=5, state=Accepted())
    refused = a.expect(Disposition, first=6)
    assert isinstance(refused.state, Rejected)
    s.show("q", "r", "rest")


def headers_and_selectors_of_bindings(s: Stage) -> None:
    s.declare("r")
    _bound(
        s,
        "x",
        "headers",
        c.Bind("x", "q", arguments={"x-match": "any", "size": "3", "urgent": "yes"}),
        c.Bind("x", "r", selector="urgent = 'yes' AND size IS NULL"),
        unroutable="refuse",
    )
    a = s.script().usual()
    a.sender("x")
    a.send(transfer(0, _says(size="3")), transfer(1, _says(urgent="yes")), transfer(2, _says(size="4")), transfer(3, _says()))
    a.expect(Disposition, first=0, last=1, state=Accepted())
    a.expect(Disposition, first=2, state=Released())
    a.expect(Disposition, first=3, state=Released())
    s.show("q", "r")


def the_anonymous_terminus_to_exchanges(s: Stage) -> None:
    _bound(s, "x", "direct", c.Bind("x", "q", "red"), unroutable="refuse")
    a = s.script().usual()
    a.sender(name="relay", target=Target())
    a.send(
        transfer(0, _says(to="x/red")), transfer(1, _says("red", to="x")), transfer(2, _says(to="x")), transfer(3, _says(to="q"))
    )
    for number, state in ((0, Accepted()), (1, Accepted()), (2, Released()), (3, Accepted())):
        a.expect(Disposition, first=number, state=state)
    s.show("q")


def an_exchange_that_is_deleted(s: Stage) -> None:
    _bound(s, "x", "fanout", c.Bind("x", "q"))
    a = s.script().usual()
    a.sender("x")
    a.send(transfer(0))
    a.expect(Disposition, state=Accepted())
    s.service.submit(c.DeleteExchange("x"))
    s.note("the exchange is deleted: its links end, and later messages to it are refused")
    ended = a.expect(Detach)
    assert ended.error is not None
    assert ended.error.condition == "amqp:resource-deleted"
    a.send(detach())
    a.sender(name="relay", target=Target())
    a.send(transfer(1, _says(to="x")))
    refused = a.expect(Disposition, first=1)
    assert isinstance(refused.state, Rejected)
    assert refused.state.error is not None
    assert refused.state.error.condition == "amqp:not-found"
    s.show("q")


def a_full_queue_behind_an_exchange(s: Stage) -> None:
    s.declare("small", maxMessages=1, overflow="reject")
    _bound(s, "x", "topic", c.Bind("x", "small", "#"), c.Bind("x", "q", "both"))
    a = s.script().usual()
    a.sender("x/both")
    a.sender("x/small", 1)
    a.send(transfer(0), transfer(1))
    s.note("one of the two queues stored the message")
    a.expect(Disposition, first=0, last=1, state=Accepted())
    a.send(transfer(2, handle=1))
    refused = a.expect(Disposition, first=2)
    assert isinstance(refused.state, Rejected)
    assert refused.state.error is not None
    assert refused.state.error.condition == "amqp:resource-limit-exceeded"
    s.show("q", "small")


def first_uses_make_what_policies_allow(s: Stage) -> None:
    policies = [Policy("jobs.*", create=True), Policy("topics.*", create=True, type="topic", options={"unroutable": "drop"})]
    s.service.state.policies = Policies(policies)
    a = s.script().usual()
    a.sender("jobs.a")
    a.send(transfer(0))
    a.expect(Disposition, state=Accepted())
    a.receiver("jobs.b", handle=1, credit=1)
    a.sender("topics.a/key", 2)
    a.send(transfer(1, handle=2))
    a.expect(Disposition, state=Accepted())
    s.note("no other node is created")
    for attach in (sends("other", 3), receives("others", 4)):
        a.send(attach)
        a.expect(Attach)
        refused = a.expect(Detach)
        assert refused.error is not None
        assert refused.error.condition == "amqp:not-found"
    s.nodes()


def addresses_of_other_brokers(s: Stage) -> None:
    s.note("the error contains the plain address")
    a = s.script().usual()
    for number, address in enumerate(("/queues/q", "queue://q", "topic://q", "amqp://user:secret@host/q", "/queue/q")):
        for attach in (sends(address, name=f"to {number}"), receives(address, name=f"from {number}")):
            a.send(attach)
            a.expect(Attach)
            error = a.expect(Detach).error
            assert error is not None
            assert error.condition == "amqp:not-found"
            assert error.description == "an address here has no prefix and no URL: use 'q'"
            a.send(detach())
    s.note("the address of a message to the anonymous terminus")
    a.sender(name="relay", target=Target())
    to = "/exchanges/news/uk"
    a.send(transfer(0, message(b"x", properties=Properties(to=to))))
    state = a.expect(Disposition, first=0).state
    assert isinstance(state, Rejected)
    assert state.error is not None
    assert "use 'news/uk'" in str(state.error.description)
    s.note("an existing exchange of that name takes precedence")
    s.exchange("queues")
    a.sender("queues/q", handle=1)
    a.receiver("queues/q", handle=2, credit=1)
    a.send(transfer(1, message(b"by the exchange"), 1))
    a.expect(Disposition, first=1)
    a.expect_messages(b"by the exchange")
    s.show("q")


SCENARIOS: list[Scenario] = [
    a_target_with_a_routing_key,
    a_target_without_one_goes_by_the_subject,
    headers_and_selectors_of_bindings,
    the_anonymous_terminus_to_exchanges,
    an_exchange_that_is_deleted,
    a_full_queue_behind_an_exchange,
    first_uses_make_what_policies_allow,
    addresses_of_other_brokers,
]
