"""Termini, as an attach is read: filters, lifetimes, the queues of subscriptions, restarts and rights."""

from __future__ import annotations

import shutil
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from penstock.broker_core.amqp.performatives import Attach, Detach, Disposition, Source, Target
from penstock.broker_core.amqp.types import Array, Described, Symbol, ULong
from penstock.broker_core.amqp_plane.conditions import Refusal
from penstock.broker_core.amqp_plane.nodes import subscriptions
from penstock.broker_core.amqp_plane.nodes.dynamic import lifetime_of
from penstock.broker_core.amqp_plane.nodes.filters import Filters, filters_of
from penstock.broker_core.amqp_plane.plane import TICK_S
from penstock.broker_core.engine import commands as c
from penstock.broker_core.engine.model.names import check_name
from penstock.broker_core.errors import InvalidSelector

from ..journal.lying_disk import LyingDisk
from ..security.helpers import user
from .frames import flow, receives, sends, transfer
from .harness import stage
from .logins import Site, log_in
from .scenarios_subscriptions import durably, subscribes

SELECTOR, NO_LOCAL = "apache.org:selector-filter:string", "apache.org:no-local-filter:list"


def read(**filters: Any) -> Filters:
    return filters_of(Source(filter={Symbol(name.replace("_", "-")): value for name, value in filters.items()}))


@pytest.mark.parametrize("descriptor", [Symbol(SELECTOR), ULong(0x0000468C00000004)])
def test_a_filter_is_known_by_its_descriptor(descriptor: object) -> None:
    filters = read(any_name=Described(descriptor, "a = 1"))
    assert filters.selector is not None
    assert filters.selector.text == "a = 1"
    assert filters.answered == {"any-name": Described(descriptor, "a = 1")}


def test_or_by_its_key() -> None:
    filters = filters_of(Source(filter={Symbol(SELECTOR): "a = 1", Symbol(NO_LOCAL): []}))
    assert filters.selector is not None
    assert filters.no_local


def test_of_no_local_only_the_name_is_answered_so_that_a_link_keeps_nothing_large() -> None:
    large = Array("symbol", (Symbol("ab"),) * 20_000)
    for descriptor in (Symbol(NO_LOCAL), ULong(0x0000468C00000003)):
        filters = read(no_local=Described(descriptor, large), again=Described(descriptor, large))
        assert filters == Filters(no_local=True, answered={"no-local": Described(descriptor, [])})
    assert filters_of(Source(filter={Symbol(NO_LOCAL): large})).answered == {NO_LOCAL: Described(Symbol(NO_LOCAL), [])}


@pytest.mark.parametrize("value", [Described(Symbol(SELECTOR), "a = 1"), Described(Symbol(NO_LOCAL), [])])
def test_a_long_key_is_refused_where_its_filter_is_known(value: Described) -> None:
    assert filters_of(Source(filter={Symbol("k" * 255): value})).answered == {"k" * 255: value}
    with pytest.raises(Refusal, match="256 characters; at most 255"):
        filters_of(Source(filter={Symbol("k" * 256): value}))
    assert filters_of(Source(filter={Symbol("k" * 256): Described(Symbol("com.example:filter"), "x")})) == Filters()


def test_what_is_not_known_is_not_answered() -> None:
    assert read(other=Described(Symbol("com.example:filter"), "x")) == Filters()


@pytest.mark.parametrize(
    "wrong",
    [
        {"a": Described(Symbol(SELECTOR), 7)},
        {"a": Described(Symbol(SELECTOR), "b = 1"), "c": Described(ULong(0x468C00000004), "d = 1")},
    ],
)
def test_a_selector_is_one_string(wrong: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match="selector"):
        read(**wrong)


def test_a_selector_that_says_nothing_is_refused_by_its_place() -> None:
    with pytest.raises(InvalidSelector):
        read(a=Described(Symbol(SELECTOR), "a = = 1"))


@pytest.mark.parametrize(
    ("descriptor", "lifetime"),
    [
        (None, "link"),
        (0x2B, "link"),
        (0x2C, "unused"),
        (0x2D, "empty"),
        ("amqp:delete-on-no-links-or-messages:list", "unusedOrEmpty"),
    ],
)
def test_each_lifetime_policy_is_an_option(descriptor: int | str | None, lifetime: str) -> None:
    policy = None if descriptor is None else Described(descriptor, [])
    assert lifetime_of({Symbol("lifetime-policy"): policy}) == lifetime


@pytest.mark.parametrize(
    ("value", "condition"),
    [
        (Described(0x2F, []), "amqp:not-implemented"),
        (Described(Symbol("amqp:for-ever:list"), []), "amqp:not-implemented"),
        ("link", "amqp:invalid-field"),
        (0x2B, "amqp:invalid-field"),
        ([], "amqp:invalid-field"),
    ],
)
def test_another_policy_is_refused_with_those_that_are_allowed(value: object, condition: str) -> None:
    """E2, 3.5.9"""
    with pytest.raises(
        Refusal, match=r"lifetime-policy .*amqp:delete-on-close:list.*amqp:delete-on-no-links-or-messages:list"
    ) as refused:
        lifetime_of({Symbol("lifetime-policy"): value})
    assert refused.value.condition == condition


@pytest.mark.parametrize("value", [None, {}, "", [None], [True]])
def test_a_lifetime_policy_is_an_empty_list(value: object) -> None:
    """3.5.10 to 3.5.13"""
    with pytest.raises(Refusal, match="an empty list") as refused:
        lifetime_of({Symbol("lifetime-policy"): Described(0x2B, value)})
    assert refused.value.condition == "amqp:invalid-field"


# A name has up to 12 characters for each of these.
PARTS = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(":/%|"), min_size=1, max_size=5)


@given(st.tuples(PARTS, PARTS, PARTS), st.tuples(PARTS, PARTS, PARTS))
def test_each_subscription_has_a_queue_of_its_own(left: tuple[str, str, str], right: tuple[str, str, str]) -> None:
    """A stranger cannot choose names that lead to another user's subscription."""

    def queues(user: str, container: str, name: str) -> list[str]:
        peer: Any = SimpleNamespace(user=user, container=container)
        own, all_ = subscriptions.of_name(peer, name, ()), subscriptions.of_name(peer, "x" + name, ("global",))
        source = Source(capabilities=("shared",))
        return [own, all_, subscriptions.of_link(peer, "x" + name, source, "news", None, Filters()).queue]

    left_queues = queues(*left)
    assert len(set(left_queues)) == 3
    for queue in left_queues:
        check_name("queue", queue)
        assert "/" not in queue
    if left != right:
        assert left_queues[0] != queues(*right)[0]


def test_a_durable_subscription_outlives_the_broker_and_others_do_not(tmp_path: Path) -> None:
    """E2"""
    with stage(tmp_path) as s:
        s.exchange("news")
        a = s.script(container_id="reader").usual()
        for handle, attach in enumerate([durably("sub"), subscribes("plain"), subscribes("both|volatile1", "news", 0, "shared")]):
            attach.handle = handle
            a.send(attach)
            a.expect(Attach)
        a.sender("news", 9)
        a.send(transfer(0, handle=9))
        a.expect(Disposition)
        made = Target(dynamic=True, capabilities=(Symbol("temporary-topic"),))
        a.send(sends(handle=10, name="topic", target=made))
        a.expect(Attach)
        assert len(s.service.state.queues) == 3
        assert len(s.service.state.exchanges.by_name) == 2
        s.service.journal.wait(s.service.journal.end)
        shutil.copytree(s.settings.data, tmp_path / "copy" / "data")  # the state after a crash
    with stage(tmp_path / "copy") as s:
        assert list(s.service.state.queues) == ["sub:anonymous:reader:sub"]
        assert list(s.service.state.exchanges.by_name) == ["news"]
        b = s.script(container_id="reader").usual()
        b.send(durably("sub"), flow(0, 1))
        b.expect(Attach)
        b.expect_messages(b"m0")


USERS = {"alice": user("secret"), "bob": user("secret")}


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(
        tmp_path, USERS, {"alice": {"news": "receive", "temp:*": "receive"}, "bob": {"sub:*": "receive", "temp:*": "send"}}
    )


def test_a_subscription_is_permitted_by_its_exchange(site: Site, tmp_path: Path) -> None:
    """W3"""
    with stage(tmp_path, access=site.access) as s:
        s.exchange("news")
        alice, bob = log_in(s, "alice").usual(), log_in(s, "bob").usual()
        alice.send(durably("sub"))
        assert alice.expect(Attach).source is not None
        refused(bob, durably("sub"))
        site.edit(USERS, {"alice": {"sub:*": "receive"}})
        error = alice.expect(Detach).error
        assert error is not None
        assert error.condition == "amqp:unauthorized-access"


def test_a_subscription_of_all_is_not_for_those_who_may_not_hear_it(tmp_path: Path) -> None:
    """W3: nor can they end it, or create one for another exchange."""
    site = Site(tmp_path, USERS, {"alice": {"news": "receive"}, "bob": {"weather": "receive"}})
    with stage(tmp_path, access=site.access) as s:
        s.exchange("news")
        s.exchange("weather")
        alice, bob = log_in(s, "alice").usual(), log_in(s, "bob").usual()
        alice.send(durably("all|global", "news", 0, "shared", "global"))
        assert alice.expect(Attach).source is not None
        alice.send(Detach(handle=0))
        alice.expect(Detach)
        refused(bob, durably("all|global", "weather", 0, "shared", "global"))
        refused(bob, receives(name="all|global", source=None, desired_capabilities=(Symbol("global"),)))
        assert "sub:all" in s.service.state.queues


@pytest.mark.parametrize(("name", "shared"), [("sub", ()), ("sub|global", ("shared", "global"))])
def test_a_subscription_whose_exchange_is_gone(name: str, shared: tuple[str, ...], tmp_path: Path) -> None:
    """Its owner may receive the waiting messages, end it, or make it again. A shared one with messages is ended by an
    operator.
    """
    with stage(tmp_path) as s:
        s.exchange("news")
        a = s.script(container_id="a").usual()
        a.sender("news", 9)
        a.send(durably(name, "news", 0, *shared))
        a.expect(Attach)
        a.send(Detach(handle=0))
        a.expect(Detach)
        a.send(transfer(0, handle=9))
        a.expect(Disposition)
        s.service.submit(c.DeleteExchange("news"))
        s.exchange("other")
        gone = a.expect(Detach)
        assert gone.error is not None
        a.send(Detach(handle=9, closed=True))
        a.send(receives(name=name, source=None, desired_capabilities=tuple(map(Symbol, shared))), flow(0, 1))
        if shared:
            a.expect(Attach, source=None)
            a.send(Detach(handle=0, closed=True))
            assert a.expect(Detach).error is not None
            a.send(durably(name, "other", 1, *shared))
            a.expect(Attach, source=None)
            assert a.expect(Detach).error is not None
            return
        a.expect(Attach)
        a.expect_messages(b"m0")
        a.send(Detach(handle=0))
        a.expect(Detach)
        a.send(durably(name, "other", 1, *shared))
        answer = a.expect(Attach).source
        assert isinstance(answer, Source)
        assert answer.address == "other"


def test_a_pattern_that_cannot_be_bound_changes_nothing(tmp_path: Path) -> None:
    with stage(tmp_path) as s:
        s.exchange("news", "fanout")
        a = s.script(container_id="a").usual()
        for attach in (durably("sub"), durably("sub", "news/a.key")):
            a.send(attach)
            a.expect(Attach)
            a.send(Detach(handle=0))
            a.expect(Detach)
            assert list(s.service.state.queues) == ["sub:anonymous:a:sub"]


def test_a_copy_of_an_exchange_is_received_and_one_of_a_queue_browsed(tmp_path: Path) -> None:
    """W3"""
    site = Site(tmp_path, USERS, {"alice": {"*": "receive"}, "bob": {"*": "browse"}})
    with stage(tmp_path, access=site.access) as s:
        s.exchange("news")
        s.declare("q")
        alice, bob = log_in(s, "alice").usual(), log_in(s, "bob").usual()
        alice.send(durably("sub"))
        assert alice.expect(Attach).source is not None
        refused(bob, durably("sub"))
        terminus = {"durable": 2, "expiry_policy": "never", "distribution_mode": "copy"}
        bob.send(receives(handle=1, source=Source(address="q", **terminus)))
        shown = bob.expect(Attach).source
        assert isinstance(shown, Source)
        assert (shown.distribution_mode, shown.durable, shown.expiry_policy) == ("copy", 0, "link-detach")
        refused(alice, receives(handle=1, source=Source(address="q", **terminus)))


def test_an_attach_that_waits_for_the_disk_is_not_one_to_a_deleted_node(tmp_path: Path) -> None:
    """The plane looks for links of deleted queues, also while a subscription's queue is not created yet."""
    with stage(tmp_path, disk=LyingDisk()) as s:
        s.exchange("news")
        s.declare("q")
        a = s.script(container_id="a").usual()
        a.sender("q", 9)
        s.slow_disk()
        a.send(transfer(0, handle=9))
        a.send(durably("sub"))
        looked = s.plane.now() + 3 * TICK_S
        s.until(lambda: s.plane.now() > looked, "the plane has looked")
        s.quick_disk()
        a.expect(Disposition)
        assert a.expect(Attach).source is not None
        a.nothing()


def test_a_dynamic_node_needs_the_right_to_receive_there(site: Site, tmp_path: Path) -> None:
    """W3"""
    with stage(tmp_path, access=site.access) as s:
        alice, bob = log_in(s, "alice").usual(), log_in(s, "bob").usual()
        alice.send(receives(source=Source(dynamic=True), name="replies"))
        answer = alice.expect(Attach).source
        assert isinstance(answer, Source)
        refused(bob, receives(source=Source(dynamic=True), name="replies"))
        bob.sender(answer.address, 1)


def refused(script: Any, attach: Attach) -> None:
    script.send(attach)
    script.expect(Attach, source=None)
    refusal = script.expect(Detach)
    assert refusal.error is not None
    assert refusal.error.condition == "amqp:unauthorized-access"
    script.send(Detach(handle=attach.handle, closed=True))
