"""The queue engine: commands in, events and replies out. No I/O, clock, thread or randomness in here.

`decide(state, command, now)` reads and returns events; `apply(state, event, position)` is the only code that changes the
state, live and at recovery. The rooms: `states` (the table of transitions), `rowset` (which messages), `series` and `blocks`
(columns), `queues`, `leases`, `state` (the whole), `commands`, `events`, `decide` and `decide_leases`, `apply`.
"""

from broker_core.engine import decide_leases as _decide_leases  # registers what it decides
from broker_core.engine.apply import apply
from broker_core.engine.decide import Decision, decide
from broker_core.engine.state import BrokerState

__all__ = ["BrokerState", "Decision", "apply", "decide"]
del _decide_leases
