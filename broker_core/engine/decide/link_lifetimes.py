"""What is decided about links as far as lifetimes depend on them: see `lifetimes`."""

from __future__ import annotations

from penstock.broker_core.engine.columns.limits import MAX_LINKS
from penstock.broker_core.engine.commands import exchanges as x
from penstock.broker_core.engine.commands import queues as c
from penstock.broker_core.engine.decide.decision import Decision, need_queue
from penstock.broker_core.engine.decide.lifetimes import check_owner, what_ends
from penstock.broker_core.engine.events import exchanges as xe
from penstock.broker_core.engine.model.state import BrokerState
from penstock.broker_core.errors import ResourceLimit


def end_node(state: BrokerState, command: x.EndNode, now: c.Now) -> Decision[bool]:
    event = what_ends(state, command.node)
    return Decision([] if event is None else [(event, None)], event is not None)


def open_link(state: BrokerState, command: x.OpenLink, now: c.Now) -> Decision[int]:
    if command.node not in state.exchanges.by_name:
        need_queue(state, command.node)
    if command.receives:
        check_owner(state, command.node, command.owner)
    if len(state.links.get(command.node, ())) >= MAX_LINKS:
        raise ResourceLimit(f"{command.node!r} has {MAX_LINKS} links, which is the limit: end some")
    event = xe.LinkOpened(command.node, state.next_link, command.makes, command.owner if command.makes else None)
    return Decision([(event, None)], state.next_link)


def close_link(state: BrokerState, command: x.CloseLink, now: c.Now) -> Decision[None]:
    known = command.link in state.links.get(command.node, ())
    return Decision([(xe.LinkGone(command.node, command.link), None)] if known else [], None)
