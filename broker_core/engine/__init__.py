"""The queue engine: commands in, events and replies out. No I/O, clock, thread or randomness in here.

`decide(state, command, now)` reads and returns events; `apply(state, event, position)` is the only code that changes the
state, live and at recovery. The folders, from the ground up; a subject has the same file name in the last four:

columns/    rows as columns of numbers; begin with `states` (the table of transitions), `rowset` and `blocks`
model/      what there is: queues, leases, exchanges, transactions; `state` is the whole
commands/   what can be asked
events/     what was decided, and how the journal has it
decide/     state and command to events and a reply
apply/      state and event to the next state
"""

# These register what they decide and apply.
from penstock.broker_core.engine.apply import exchanges as _apply_exchanges
from penstock.broker_core.engine.apply import moves as _apply_moves
from penstock.broker_core.engine.apply import outcomes as _apply_outcomes
from penstock.broker_core.engine.apply import time as _apply_time
from penstock.broker_core.engine.apply import transactions as _apply_transactions
from penstock.broker_core.engine.apply.queues import apply
from penstock.broker_core.engine.decide import alterations as _decide_alter
from penstock.broker_core.engine.decide import exchanges as _decide_exchanges
from penstock.broker_core.engine.decide import immediate as _immediate
from penstock.broker_core.engine.decide import leases as _decide_leases
from penstock.broker_core.engine.decide import link_lifetimes as _decide_lifetimes
from penstock.broker_core.engine.decide import links as _decide_links
from penstock.broker_core.engine.decide import moves as _decide_moves
from penstock.broker_core.engine.decide import routes as _decide_routes
from penstock.broker_core.engine.decide import time as _decide_time
from penstock.broker_core.engine.decide import transactions as _decide_transactions
from penstock.broker_core.engine.decide.queues import Decision, decide
from penstock.broker_core.engine.model.state import BrokerState

__all__ = ["BrokerState", "Decision", "apply", "decide"]
del _apply_exchanges, _decide_exchanges, _decide_lifetimes, _decide_routes
del _apply_outcomes, _apply_transactions, _decide_transactions
del _apply_moves, _decide_alter, _decide_moves
del _apply_time, _decide_leases, _decide_links, _decide_time, _immediate
