"""W5: the parts of a frame that stay in memory after its answer. Sixty kilobytes of symbols take megabytes decoded."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from penstock.broker_core.amqp.frames import encode_frame
from penstock.broker_core.amqp.performatives import (
    Accepted,
    Attach,
    Begin,
    Detach,
    Disposition,
    Error,
    Flow,
    Modified,
    Rejected,
    Source,
    Target,
)
from penstock.broker_core.amqp.types import Array, Described, Symbol
from penstock.broker_core.amqp_plane.plane import FIRST_FRAME_BYTES

from ..service.helpers import enqueue
from .frames import begin, flow, message, receives, says, sends, symbol, transfer
from .harness import Script, Stage, stage
from .transacting import commit, control, declare, within

MANY = 30_000  # symbols, which are nearly a frame
FRAMES = 6
FEW = MANY // 2  # Python's blocks of memory: each symbol needs one, and an attach leaves a few dozen


@pytest.fixture
def staged(tmp_path: Path) -> Iterator[Stage]:
    with stage(tmp_path, fsync="never", amqp_max_links=100) as s:
        s.declare("q")
        yield s


def symbols(number: int) -> tuple[Symbol, ...]:
    """Return many symbols, a few less for each number, so that all frames differ."""
    return (symbol("a"),) * (MANY - number)


def fields(number: int) -> dict[Symbol, Any]:
    return {symbol("k"): Array("symbol", symbols(number))}


def unknown(number: int) -> Described:
    return Described(symbol("x:y"), Array("symbol", symbols(number)))


def grown(s: Stage, act: Callable[[int], None]) -> int:
    """Return the growth in blocks while an action is repeated. The first runs are not counted."""

    def held() -> int:
        s.settle()
        s.lines.clear()
        gc.collect()
        return sys.getallocatedblocks()

    for number in range(2):
        act(number)
    before = held()
    for number in range(2, 2 + FRAMES):
        act(number)
    return held() - before


def say(a: Script, body: Any, payload: bytes = b"", channel: int = 0) -> None:
    a.say(type(body).__name__, encode_frame(channel, body.encode(), payload))


CRAM: list[Callable[[int], dict[str, Any]]] = [
    lambda number: {"offered_capabilities": symbols(number)},
    lambda number: {"desired_capabilities": symbols(number)},
    lambda number: {"properties": fields(number)},
]


OPEN = (symbol("a"),) * (FIRST_FRAME_BYTES // 2 - 100)  # which may be smaller than others


@pytest.mark.parametrize(
    "cram",
    [
        {"offered_capabilities": OPEN},
        {"desired_capabilities": OPEN},
        {"incoming_locales": OPEN},
        {"outgoing_locales": OPEN},
        {"properties": {symbol("k"): Array("symbol", OPEN)}},
    ],
)
def test_of_an_open_only_numbers_are_kept(staged: Stage, cram: dict[str, Any]) -> None:
    def opens(**fields: Any) -> Callable[[int], None]:
        def act(number: int) -> None:
            staged.script(container_id=f"{number} {len(fields)}", **fields)

        return act

    assert grown(staged, opens(**cram)) < grown(staged, opens()) + FEW


@pytest.mark.parametrize("cram", CRAM)
def test_of_a_begin_only_numbers_are_kept(staged: Stage, cram: Callable[[int], dict[str, Any]]) -> None:
    a = staged.script()

    def act(number: int) -> None:
        say(a, begin(**cram(number)), channel=number)
        a.expect(Begin)

    assert grown(staged, act) < FEW


def parts(number: int) -> tuple[tuple[Symbol, ...], dict[Symbol, Any], Described]:
    """Return parts of a third of a frame each."""
    third = symbols(number + MANY * 2 // 3)
    return third, {symbol("k"): Array("symbol", third)}, Described(symbol("x:y"), Array("symbol", third))


def at_the_top(number: int) -> dict[str, Any]:
    some, named, _ = parts(number)
    return {"offered_capabilities": some, "desired_capabilities": some, "properties": named}


def in_the_source(number: int) -> dict[str, Any]:
    some, named, _ = parts(number)
    return {"source": Source(address="q", capabilities=some, outcomes=some, filter=named)}


def in_both_termini(number: int) -> dict[str, Any]:
    some, named, state = parts(number)
    source = Source(address="q", dynamic_node_properties=named, default_outcome=state)
    return {"source": source, "target": Target(address="here", capabilities=some)}


def in_the_map(number: int) -> dict[str, Any]:
    return {"unsettled": {b"t": parts(number)[2], b"u": Rejected(error=Error(condition="x:y", info=parts(number)[1]))}}


@pytest.mark.parametrize("cram", [at_the_top, in_the_source, in_both_termini, in_the_map])
def test_of_an_attach_only_modes_and_sizes_are_kept(staged: Stage, cram: Callable[[int], dict[str, Any]]) -> None:
    a = staged.script().usual()

    def act(number: int) -> None:
        say(a, receives("q", number, name=f"from {number}", **cram(number)))
        a.expect(Attach)
        say(a, sends("q", FRAMES * 2 + number, name=f"to {number}", **{**cram(number), "target": Target(address="q")}))
        a.expect(Attach)
        a.expect(Flow)

    assert grown(staged, act) < FEW


def test_of_a_refused_attach_nothing_is_kept(staged: Stage) -> None:
    a = staged.script().usual()

    def act(number: int) -> None:
        source = Source(address="nowhere", capabilities=symbols(number))
        say(a, receives("q", number, name=f"from {number}", source=source))
        a.expect(Attach)
        a.expect(Detach)

    assert grown(staged, act) < FEW


def test_of_a_flow_nothing_is_kept(staged: Stage) -> None:
    a = staged.script().usual()

    def act(number: int) -> None:
        say(a, flow(None, properties=fields(number), echo=True))
        a.expect(Flow)

    assert grown(staged, act) < FEW


def rejected(number: int) -> Rejected:
    return Rejected(error=Error(condition="x:y", info=fields(number)))


def modified(number: int) -> Modified:
    return Modified(delivery_failed=True, message_annotations=fields(number))


@pytest.mark.parametrize("transacted", [False, True])
def test_of_a_disposition_only_the_outcome_is_kept(staged: Stage, *, transacted: bool) -> None:
    """In a transaction until its end. Outside of one, a state without an outcome is kept until the outcome."""
    every = range(FRAMES + 2)
    staged.service.submit(enqueue("q", *[b"m"] * len(every)))
    a = staged.script().usual()
    a.receiver(credit=len(every))
    for _ in every:
        a.expect_message()
    control(a)
    txn = declare(a, 0)

    def act(number: int) -> None:
        say(a, says(within(txn, rejected(number)) if transacted else unknown(number), number, settled=False))
        if number == every[-1]:
            a.nothing()

    assert grown(staged, act) < FEW
    if transacted:
        commit(a, 1, txn)
        a.expect(Disposition, state=Rejected(error=Error(condition="x:y")))


@pytest.mark.parametrize("state", [unknown, rejected, modified])
def test_of_a_transfer_the_state_is_not_kept(staged: Stage, state: Callable[[int], Any]) -> None:
    """Neither for deliveries that are not complete."""
    a = staged.script().usual()
    every = range(FRAMES + 2)
    for number in every:
        a.sender(handle=number, name=f"to q {number}")

    def act(number: int) -> None:
        body, payload = transfer(number, message(b"x"), handle=number, state=state(number), more=number % 2 == 0)
        say(a, body, payload)
        if number % 2:
            a.expect(Disposition, state=Accepted())

    assert grown(staged, act) < FEW
