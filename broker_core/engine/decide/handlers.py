"""`decide(state, command, now)`: state and command to events, a reply and effects. Reads the state and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from ..commands import exchanges as x
from ..commands import moves as mc
from ..commands import outcomes as oc
from ..commands import passes as pc
from ..commands import queues as c
from ..commands import transactions as tc
from ..model.state import BrokerState
from . import (
    alterations,
    exchanges,
    immediate,
    leases,
    lifetimes,
    links,
    moves,
    outcomes,
    passes,
    queues,
    routes,
    time,
    transactions,
)
from .decision import Decision
from .effects import effects_of

R = TypeVar("R")

HANDLERS: dict[type[c.Command[Any]], Callable[[BrokerState, Any, c.Now], Decision[Any]]] = {
    c.DeclareQueue: queues.declare_queue,
    c.DeleteQueue: queues.delete_queue,
    c.Enqueue: queues.enqueue,
    c.StageMessages: queues.stage_messages,
    c.Publish: queues.publish,
    c.IsPublished: queues.is_published,
    c.Discard: queues.discard,
    c.ListStages: queues.list_stages,
    c.Purge: queues.purge,
    c.Stat: queues.stat,
    c.Recovered: queues.recovered,
    c.PackBlock: queues.pack_block,
    c.Retain: queues.retain,
    mc.AlterQueue: alterations.alter_queue,
    mc.PauseQueue: alterations.pause_queue,
    mc.ResumeQueue: alterations.resume_queue,
    x.DeclareExchange: exchanges.declare_exchange,
    x.DeleteExchange: exchanges.delete_exchange,
    x.Bind: exchanges.bind,
    x.Unbind: exchanges.unbind,
    x.ListExchanges: exchanges.list_exchanges,
    c.EnterLease: leases.enter_lease,
    c.FinishBatches: leases.finish_batches,
    c.AcquireBatch: leases.acquire_batch,
    c.MeasureBatch: leases.measure_batch,
    c.PlanBatches: leases.plan_batches,
    c.ReadBatch: leases.read_batch,
    c.RenewLease: leases.renew_lease,
    c.ListLeases: leases.list_leases,
    c.ReleaseLease: leases.release_lease,
    c.SettleRow: leases.settle_row,
    c.DeleteLease: leases.delete_lease,
    x.EndNode: lifetimes.end_node,
    x.OpenLink: lifetimes.open_link,
    x.CloseLink: lifetimes.close_link,
    c.Subscribe: links.subscribe,
    c.Acquire: links.acquire,
    c.Browse: links.browse,
    c.Settle: links.settle,
    c.Release: links.release,
    c.Unsubscribe: links.unsubscribe,
    mc.Move: moves.move,
    mc.Copy: moves.copy,
    mc.DiscardMessages: moves.discard_messages,
    mc.Redrive: moves.redrive,
    oc.StageOutcomes: outcomes.stage_outcomes,
    oc.SetAside: outcomes.set_aside,
    x.Route: routes.route_messages,
    c.Tick: time.tick,
    tc.BeginTransaction: transactions.begin_transaction,
    tc.Post: transactions.post,
    tc.Retire: transactions.retire,
    tc.FailTransaction: transactions.fail_transaction,
    tc.Discharge: transactions.discharge,
    tc.TimeOutTransactions: transactions.time_out_transactions,
    c.Withdraw: immediate.withdraw,
    pc.BeginPass: passes.begin_pass,
    pc.EndPass: passes.end_pass,
    pc.ListBacklogs: passes.list_backlogs,
}


def decide(state: BrokerState, command: c.Command[R], now: c.Now) -> Decision[R]:
    """Decide what the command leads to in this state at this time, or raise a PenstockError. Time never runs backwards."""
    decision = HANDLERS[type(command)](state, command, c.Now(max(now.wall, state.time), now.up, now.resumed))
    if decision.events:
        decision.effects = effects_of(state, decision.events)
    return decision
