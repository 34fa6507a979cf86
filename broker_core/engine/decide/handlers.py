"""`decide(state, command, now)`: state and command to events, a reply and effects. Reads the state and changes nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

from .. import commands as c
from ..model.state import BrokerState
from . import (
    cleaning,
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
    stages,
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
    c.Purge: queues.purge,
    c.Stat: queues.stat,
    c.PackBlock: queues.pack_block,
    c.Relocate: cleaning.relocate,
    c.RelocateStaged: cleaning.relocate_staged,
    c.Repack: cleaning.repack,
    c.Drop: cleaning.drop,
    c.AlterQueue: queues.alter_queue,
    c.PauseQueue: queues.pause_queue,
    c.ResumeQueue: queues.resume_queue,
    c.EnqueueImmediate: immediate.enqueue_immediate,
    c.StageMessages: stages.stage_messages,
    c.Publish: stages.publish,
    c.IsPublished: stages.is_published,
    c.Discard: stages.discard,
    c.ListStages: stages.list_stages,
    c.Subscribe: links.subscribe,
    c.Acquire: links.acquire,
    c.Browse: links.browse,
    c.Settle: links.settle,
    c.Release: links.release,
    c.Unsubscribe: links.unsubscribe,
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
    c.EndNode: lifetimes.end_node,
    c.OpenLink: lifetimes.open_link,
    c.CloseLink: lifetimes.close_link,
    c.StageOutcomes: outcomes.stage_outcomes,
    c.SetAside: outcomes.set_aside,
    c.DeclareExchange: exchanges.declare_exchange,
    c.DeleteExchange: exchanges.delete_exchange,
    c.Bind: exchanges.bind,
    c.Unbind: exchanges.unbind,
    c.ListExchanges: exchanges.list_exchanges,
    c.Route: routes.route_messages,
    c.Move: moves.move,
    c.Copy: moves.copy,
    c.DiscardMessages: moves.discard_messages,
    c.Redrive: moves.redrive,
    c.BeginTransaction: transactions.begin_transaction,
    c.Post: transactions.post,
    c.Retire: transactions.retire,
    c.FailTransaction: transactions.fail_transaction,
    c.Discharge: transactions.discharge,
    c.TimeOutTransactions: transactions.time_out_transactions,
    c.BeginPass: passes.begin_pass,
    c.EndPass: passes.end_pass,
    c.ListBacklogs: passes.list_backlogs,
    c.Recovered: time.recovered,
    c.Tick: time.tick,
}


def decide(state: BrokerState, command: c.Command[R], now: c.Now) -> Decision[R]:
    """Decide what the command leads to in this state at this time, or raise a PenstockError. Time never runs backwards."""
    decision = HANDLERS[type(command)](state, command, c.Now(max(now.wall, state.time), now.up, now.resumed))
    if decision.events:
        decision.effects = effects_of(state, decision.events)
    return decision
