"""The queue engine: commands in, events and replies out. It has no I/O, clock, thread or randomness.

`decide(state, command, now)` reads the state and returns events and a reply. `apply(state, event, position)` is the only code
that changes the state, live and at recovery. These are the folders, from the bottom up.

columns/    rows as columns of numbers; begin with `states` (the table of transitions), `rowset` and `blocks`
model/      queues, leases, exchanges, transactions; `state` contains them all
commands/   requests
events/     decisions: their form in the journal, and how each changes the state
decide/     from state and command to events and a reply

A subject has the same file name in the last three folders.
"""

from .decide.decision import Decision, Effects
from .decide.handlers import decide
from .events.event import apply
from .model.state import BrokerState

__all__ = ["BrokerState", "Decision", "Effects", "apply", "decide"]
