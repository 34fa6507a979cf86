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

from .apply.handlers import apply
from .decide.decision import Decision, Effects
from .decide.handlers import decide
from .model.state import BrokerState

__all__ = ["BrokerState", "Decision", "Effects", "apply", "decide"]
