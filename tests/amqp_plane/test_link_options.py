"""C2 Q4 Q5: the options of an attach, by the names that other brokers use."""

from __future__ import annotations

from typing import Any

import pytest

from penstock.broker_core.amqp import Condition, Source, Target
from penstock.broker_core.amqp.performatives import Attach
from penstock.broker_core.amqp.types import Byte, Int, Long, Symbol, UInt
from penstock.broker_core.amqp_plane.conditions import Refusal
from penstock.broker_core.amqp_plane.links.options import LinkOptions, link_options_of, wants_immediate


def attach(capabilities: tuple[str, ...] = (), **properties: Any) -> Attach:
    by_symbol = {Symbol(name.replace("__", ":")): value for name, value in properties.items()}
    return Attach(
        name="l", handle=0, role=True, source=Source(address="q", capabilities=capabilities), properties=by_symbol or None
    )


@pytest.mark.parametrize("value", [5, Int(5), Byte(5), UInt(5), Long(5), "5"])
@pytest.mark.parametrize("name", ["priority", "rabbitmq__priority"])
def test_a_priority_by_either_name_and_of_any_integer(name: str, value: Any) -> None:
    asked = attach(**{name: value})
    wishes = link_options_of(asked)
    assert wishes == LinkOptions(5, False)
    assert wishes.answered(asked) == {Symbol(name.replace("__", ":")): Int(5)}


@pytest.mark.parametrize(("value", "held"), [(1 << 40, 127), (-(1 << 31), -128), ("-7", -7)])
def test_a_priority_out_of_range_is_the_nearest(value: Any, held: int) -> None:
    assert link_options_of(attach(priority=value)).priority == held


def test_exclusive_is_a_property_or_a_capability_and_who_asks_for_nothing_gets_nothing() -> None:
    assert link_options_of(attach(exclusive=True)) == link_options_of(attach(("queue", "exclusive"))) == LinkOptions(0, True)
    plain = attach(("queue",), other=1)
    assert link_options_of(plain) == LinkOptions()
    assert link_options_of(plain).answered(plain) == {}


@pytest.mark.parametrize(
    "properties",
    [{"priority": value} for value in ("", "--5", "high", True, 1.5, None, b"5", "9" * 40)]
    + [{"exclusive": v} for v in (1, "true")],
)
def test_a_wish_that_says_nothing_is_refused_by_name(properties: dict[str, Any]) -> None:
    with pytest.raises(Refusal, match=next(iter(properties))) as refused:
        link_options_of(attach(**properties))
    assert refused.value.condition == Condition.INVALID_FIELD


def test_immediate_is_a_capability_of_the_target() -> None:
    assert wants_immediate(Target(address="q", capabilities=("queue", "immediate")))
    assert not wants_immediate(Target(address="q", capabilities=("queue",)))
    assert not wants_immediate(None)
