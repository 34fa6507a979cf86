"""The gate of the passes, which says when one runs: a state, and one table of what each event makes of it.

| state | meaning |
|---|---|
| idle | nothing is wanted |
| scheduled | the event loop will call the next pass |
| reading | the only socket that was ready is being read, and nothing is wanted yet |
| at once | the same, and a pass is wanted: it runs when the socket is read, without another round of the event loop |
| waiting | a pass waits for the disk: it is small and the one before is not durable, or the journal has no capacity for it |
| reading, waiting | the same, while the only socket that was ready is being read |

| event | meaning |
|---|---|
| want | something was handed in |
| read, read over | the only socket that was ready is read from here on; has been read |
| run | the event loop calls the pass |
| hold up | the pass has to wait for the disk |
| disk | more of the log is durable, or may be |

While a pass runs the state is that of the next one: idle, until something is wanted. The deadline of outcomes that nobody waits
for runs beside every state, so it is not in the table (see `passes`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# States
IDLE: Final = "idle"
SCHEDULED: Final = "scheduled"
READING: Final = "reading"
AT_ONCE: Final = "at once"
WAITING: Final = "waiting"
READING_WAITING: Final = "reading, waiting"

# Events
WANT: Final = "want"
READ: Final = "read"
READ_OVER: Final = "read over"
RUN: Final = "run"
HOLD_UP: Final = "hold up"
DISK: Final = "disk"

# Actions
NOTHING: Final = "nothing"
CALL_SOON: Final = "have the event loop call the pass"
RUN_NOW: Final = "run the pass now"

#: State → event → (next state, action). An event that a state does not list cannot happen in it.
TRANSITIONS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    IDLE: {
        WANT: (SCHEDULED, CALL_SOON),
        READ: (READING, NOTHING),
        HOLD_UP: (WAITING, NOTHING),
        DISK: (IDLE, NOTHING),
    },
    SCHEDULED: {
        WANT: (SCHEDULED, NOTHING),
        READ: (SCHEDULED, NOTHING),
        READ_OVER: (SCHEDULED, NOTHING),
        RUN: (IDLE, RUN_NOW),
        HOLD_UP: (SCHEDULED, NOTHING),
        DISK: (SCHEDULED, NOTHING),
    },
    READING: {
        WANT: (AT_ONCE, NOTHING),
        READ_OVER: (IDLE, NOTHING),
    },
    AT_ONCE: {
        WANT: (AT_ONCE, NOTHING),
        READ_OVER: (IDLE, RUN_NOW),
    },
    WAITING: {
        WANT: (SCHEDULED, CALL_SOON),
        READ: (READING_WAITING, NOTHING),
        DISK: (SCHEDULED, CALL_SOON),
    },
    READING_WAITING: {
        WANT: (AT_ONCE, NOTHING),
        READ_OVER: (WAITING, NOTHING),
    },
}


class Gate:
    """The state of one plane's passes. Used in the loop's thread; other threads may look at `waits`."""

    __slots__ = ("_call_soon", "_run", "state")

    def __init__(self, call_soon: Callable[[], object], run: Callable[[], object]) -> None:
        """`call_soon` makes the event loop call back, where RUN is to be said; `run` runs the pass."""
        self._call_soon = call_soon
        self._run = run
        self.state: str = IDLE

    def happened(self, event: str) -> None:
        """Change the state, and do what belongs to that. KeyError for an event that cannot happen in this state."""
        self.state, action = TRANSITIONS[self.state][event]
        if action is RUN_NOW:
            self._run()
        elif action is CALL_SOON:
            self._call_soon()

    def want(self) -> None:
        """Have a pass run soon."""
        if self.state is not SCHEDULED:
            self.happened(WANT)

    @property
    def waits(self) -> bool:
        """Say whether a pass waits for the disk."""
        return self.state is WAITING or self.state is READING_WAITING
