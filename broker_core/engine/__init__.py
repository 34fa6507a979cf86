"""The queue engine: commands in, events and replies out. No I/O, clock, thread or randomness in here.

`decide(state, command, now)` reads and returns events; `apply(state, event, position)` is the only code that changes the
state, live and at recovery. Begin with `states` (the table of transitions), `rowset` (which messages), `blocks` (their columns),
`queues` and `state` (the whole). Commands, events, deciding and applying are a module each by subject: `commands` and
`exchange_commands`, `decide` and `decide_leases`. ARCHITECTURE.md lists all rooms ("The engine's rooms").
"""

# These register what they decide and apply.
from broker_core.engine import apply_exchanges as _apply_exchanges
from broker_core.engine import apply_moves as _apply_moves
from broker_core.engine import apply_outcomes as _apply_outcomes
from broker_core.engine import apply_time as _apply_time
from broker_core.engine import apply_transactions as _apply_transactions
from broker_core.engine import decide_alter as _decide_alter
from broker_core.engine import decide_exchanges as _decide_exchanges
from broker_core.engine import decide_leases as _decide_leases
from broker_core.engine import decide_lifetimes as _decide_lifetimes
from broker_core.engine import decide_links as _decide_links
from broker_core.engine import decide_moves as _decide_moves
from broker_core.engine import decide_routes as _decide_routes
from broker_core.engine import decide_time as _decide_time
from broker_core.engine import decide_transactions as _decide_transactions
from broker_core.engine import immediate as _immediate
from broker_core.engine.apply import apply
from broker_core.engine.decide import Decision, decide
from broker_core.engine.state import BrokerState

__all__ = ["BrokerState", "Decision", "apply", "decide"]
del _apply_exchanges, _decide_exchanges, _decide_lifetimes, _decide_routes
del _apply_outcomes, _apply_transactions, _decide_transactions
del _apply_moves, _decide_alter, _decide_moves
del _apply_time, _decide_leases, _decide_links, _decide_time, _immediate
