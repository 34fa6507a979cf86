"""Subscriptions to an exchange, and termini that outlive their links: OASIS *AMQP binding and mapping for JMS* (E1 E2, C10)."""

from __future__ import annotations

from typing import Any

from penstock.broker_core.amqp.performatives import Accepted, Attach, Detach, Disposition, End, Source
from penstock.broker_core.amqp.types import Described, Symbol
from penstock.broker_core.amqp_plane import queue_reads

from .frames import detach, flow, receives, says, symbol, transfer
from .harness import Script, Stage
from .scenarios_transactions import commit, control, declare, discharged, within

SELECTOR, NO_LOCAL = Symbol("apache.org:selector-filter:string"), Symbol("apache.org:no-local-filter:list")


def subscribes(name: str, address: str = "news", handle: int = 0, *more: str, **fields: Any) -> Attach:
    """Subscribe as JMS does; `more`: further capabilities."""
    capabilities = tuple(symbol(capability) for capability in ("topic", *more))
    return receives(handle=handle, name=name, source=Source(address=address, capabilities=capabilities, **fields))


def durably(name: str, address: str = "news", handle: int = 0, *more: str, **fields: Any) -> Attach:
    return subscribes(
        name, address, handle, *more, **{"durable": 2, "expiry_policy": "never", "distribution_mode": "copy", **fields}
    )


def _attached(a: Script, attach: Attach, credit: int = 10) -> Attach:
    a.send(attach, flow(attach.handle, credit))
    return a.expect(Attach)


def _publish(s: Stage, a: Script, *numbers: int, handle: int = 9) -> None:
    for number in numbers:
        a.send(transfer(number, handle=handle))
        a.expect(Disposition, state=Accepted())


def _publisher(s: Stage, **fields: Any) -> Script:
    a = s.script("P", container_id="publisher").usual()
    a.sender("news", 9, **fields)
    return a


def a_subscriber_gets_what_comes_after_it(s: Stage) -> None:
    s.exchange("news")
    p = _publisher(s)
    _publish(s, p, 0)
    a = s.script("A").usual()
    _attached(a, subscribes("one"))
    _attached(a, subscribes("two", handle=1))
    _publish(s, p, 1)
    a.expect_messages(b"m1", b"m1")
    s.nodes()
    a.send(detach(0), detach(1, closed=False))
    a.expect(Detach)
    a.expect(Detach)
    s.note("a volatile subscription ends with its link; after a detach that does not close, with its session")
    s.nodes()
    a.send(End())
    a.expect(End)
    s.nodes()


def a_durable_subscription(s: Stage) -> None:
    s.exchange("news")
    p = _publisher(s)
    a = s.script("A", container_id="reader").usual()
    _attached(a, durably("sub"))
    _publish(s, p, 0, 1)
    a.expect_messages(b"m0", b"m1")
    a.send(says(Accepted(), 0))
    s.note("a detach that does not close keeps the subscription and its new messages")
    a.send(detach(closed=False))
    a.expect(Detach, closed=False)
    _publish(s, p, 2)
    s.show("sub:anonymous:reader:sub")
    s.note("the link keeps its deliveries while its session is open; the subscription also survives a lost connection")
    _attached(a, durably("sub"), credit=1)
    a.expect_messages(b"m2")
    s.show("sub:anonymous:reader:sub")
    a.drop()
    b = s.script("B", container_id="reader").usual()
    _attached(b, durably("sub"))
    b.expect_messages(b"m1", b"m2")
    b.send(says(Accepted(), 0, 1), detach(closed=False))
    b.expect(Detach)
    s.note("a link with its name and no source attaches to the subscription; closing that link ends it")
    answer = _attached(b, receives(handle=1, name="sub", source=None), credit=0)
    assert isinstance(answer.source, Source)
    assert answer.source.address == "news"
    b.send(detach(1))
    b.expect(Detach, closed=True, error=None)
    s.nodes()
    b.send(receives(handle=1, name="sub", source=None))
    b.expect(Attach, source=None)
    gone = b.expect(Detach)
    assert gone.error is not None
    assert gone.error.condition == "amqp:not-found"


def another_address_or_filter_makes_it_anew(s: Stage) -> None:
    s.exchange("news")
    s.exchange("weather", "fanout")
    p = _publisher(s)
    a = s.script("A", container_id="reader").usual()

    def keep(attach: Attach) -> None:
        answer = _attached(a, attach)
        assert isinstance(answer.source, Source)
        a.send(detach(closed=False))
        a.expect(Detach)
        s.show("sub:anonymous:reader:sub")

    keep(durably("sub"))
    _publish(s, p, 0)
    s.show("sub:anonymous:reader:sub")
    s.note("without the container's own messages")
    keep(durably("sub", filter={symbol("no-local"): Described(NO_LOCAL, [])}))
    _publish(s, p, 1)
    s.note("with a routing key")
    keep(durably("sub", "news/sport.#"))
    s.note("for another exchange")
    keep(durably("sub", "weather"))


def shared_subscriptions(s: Stage) -> None:
    s.exchange("news")
    p = _publisher(s)
    a, b = s.script("A", container_id="a").usual(), s.script("B", container_id="b").usual()
    s.note("shared within a container: its two links share one, another container has its own")
    _attached(a, subscribes("sub|volatile1", "news", 0, "shared"), credit=1)
    _attached(a, subscribes("sub|volatile2", "news", 1, "shared"), credit=1)
    _attached(b, subscribes("sub|volatile1", "news", 0, "shared"), credit=2)
    _publish(s, p, 0, 1)
    a.expect_messages(b"m0", b"m1")
    b.expect_messages(b"m0", b"m1")
    s.note("shared by all containers, and durable")
    _attached(a, durably("all|global", "news", 2, "shared", "global"), credit=1)
    _attached(b, durably("all|global", "news", 2, "shared", "global"), credit=1)
    _publish(s, p, 2, 3)
    a.expect_messages(b"m2")
    b.expect_messages(b"m3")
    s.nodes()
    s.note("another routing key while the subscription is in use")
    changed = durably("all|global2", "news/sport", 3, "shared", "global")
    a.send(changed)
    a.expect(Attach, source=None)
    refusal = a.expect(Detach)
    assert refusal.error is not None
    assert refusal.error.condition == "amqp:resource-locked"
    a.send(detach(3))
    s.note("closed while it is in use")
    a.send(receives(handle=3, name="all|global", source=None, desired_capabilities=(symbol("shared"), symbol("global"))))
    stolen = a.expect(Detach, handle=2)
    assert stolen.error is not None
    a.expect(Attach)
    a.send(detach(2), detach(3))
    refusal = a.expect(Detach, handle=3)
    assert refusal.error is not None
    assert refusal.error.condition == "amqp:resource-locked"
    s.note("volatile subscriptions end with their last link")
    a.send(detach(0), detach(1))
    a.expect(Detach)
    a.expect(Detach)
    s.nodes()


def a_subscription_with_messages_in_a_transaction_stays_as_it_is(s: Stage) -> None:
    s.exchange("news")
    p = _publisher(s)
    a = s.script("A", container_id="reader").usual()
    control(a)
    _attached(a, durably("sub"))
    _publish(s, p, 0)
    a.expect_messages(b"m0")
    txn = declare(a, 0)
    a.send(says(within(txn, Accepted()), 0, settled=False), detach(closed=False))
    a.expect(Detach)
    s.note("another routing key before the discharge: refused, and nothing changes")
    a.send(durably("sub", "news/sport"))
    a.expect(Attach, source=None)
    refusal = a.expect(Detach)
    assert refusal.error is not None
    assert refusal.error.condition == "amqp:resource-locked"
    a.send(detach())
    with s.service.turn() as turn:
        assert [binding.key for _, binding in queue_reads.bindings(turn, "sub:anonymous:reader:sub")] == ["#"]
    commit(a, 1, txn)
    a.expect(Disposition, first=0, settled=True, state=Accepted())
    discharged(a, 1)
    s.show("sub:anonymous:reader:sub")
    s.note("another routing key after the discharge")
    _attached(a, durably("sub", "news/sport"))
    s.show("sub:anonymous:reader:sub")


def one_of_two_links_closes(s: Stage) -> None:
    s.exchange("news")
    p = _publisher(s)
    a = s.script("A").usual()
    _attached(a, durably("sub|1", "news", 0, "shared"), credit=0)
    _attached(a, durably("sub|2", "news", 1, "shared"), credit=0)
    s.note("another link uses the subscription: the closed link ends, the subscription does not")
    a.send(detach(0))
    refusal = a.expect(Detach, handle=0, closed=True)
    assert refusal.error is not None
    assert refusal.error.condition == "amqp:resource-locked"
    _publish(s, p, 0)
    a.send(flow(1, 5))
    a.expect_messages(b"m0")
    s.nodes()
    s.note("the last link ends the subscription")
    a.send(detach(1))
    a.expect(Detach, handle=1, error=None)
    s.nodes()


def shared_or_not(s: Stage) -> None:
    s.exchange("news")
    a = s.script("A", container_id="a").usual()
    _attached(a, durably("sub"))
    a.send(durably("sub|2", "news", 1, "shared"))
    a.expect(Attach, source=None)
    refusal = a.expect(Detach, handle=1)
    assert refusal.error is not None
    assert refusal.error.condition == "amqp:precondition-failed"
    a.send(detach(1))


def without_the_container_s_own_messages(s: Stage) -> None:
    s.exchange("news")
    a = s.script("A", container_id="a").usual()
    a.sender("news", 9)
    p = _publisher(s)
    answer = _attached(a, subscribes("others", filter={symbol("no-local"): Described(NO_LOCAL, [])}))
    assert isinstance(answer.source, Source)
    assert answer.source.filter
    _publish(s, a, 0)
    _publish(s, p, 0)
    a.expect_messages(b"m0")
    a.nothing()


SCENARIOS = [
    a_subscriber_gets_what_comes_after_it,
    a_durable_subscription,
    another_address_or_filter_makes_it_anew,
    shared_subscriptions,
    a_subscription_with_messages_in_a_transaction_stays_as_it_is,
    one_of_two_links_closes,
    shared_or_not,
    without_the_container_s_own_messages,
]
