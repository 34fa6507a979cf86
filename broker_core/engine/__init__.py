"""The queue engine: commands in, events and replies out. It has no I/O, clock, thread or randomness.

`decide(state, command, now)` reads the state and returns events and a reply. `apply(state, event, position)` is the only code
that changes the state, live and at recovery. The folders depend on each other from `decide/` down: `events/`, `commands/`,
`model/`, `columns/`. A subject has the same file name in the first three.
"""

from .decide.decision import Decision, Effects
from .decide.handlers import decide
from .events.event import apply
from .model.state import BrokerState

__all__ = ["BrokerState", "Decision", "Effects", "apply", "decide"]
