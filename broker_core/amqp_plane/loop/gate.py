"""The gate decides when a commit runs.

| state | meaning |
|---|---|
| idle | no request requires a commit |
| scheduled | the event loop will call the next commit |
| reading | the only ready socket is being read, and no request requires a commit yet |
| reading, wanted | the same, and a commit is required: it runs when the socket is read, without another round of the event loop |
| waiting | a commit waits for the disk: it is small and the previous one is not durable, or the journal has no capacity for it |
| reading, waiting | the same, while the only ready socket is being read |

| event | meaning |
|---|---|
| want | a request requires a commit |
| read, read over | reading of the only ready socket begins; ends |
| run | the event loop calls the commit |
| hold up | the commit has to wait for the disk |
| disk | more of the log is durable, or may be |

While a commit runs, the state is that of the next one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

# States
IDLE: Final = "idle"
SCHEDULED: Final = "scheduled"
READING: Final = "reading"
READING_WANTED: Final = "reading, wanted"
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
CALL_SOON: Final = "have the event loop call the commit"
RUN_NOW: Final = "run the commit now"

#: State → event → (next state, action). An event that a state does not list cannot happen in it.
TRANSITIONS: Final[dict[str, dict[str, tuple[str, str]]]] = {
    IDLE: {WANT: (SCHEDULED, CALL_SOON), READ: (READING, NOTHING), HOLD_UP: (WAITING, NOTHING), DISK: (IDLE, NOTHING)},
    SCHEDULED: {
        WANT: (SCHEDULED, NOTHING),
        READ: (SCHEDULED, NOTHING),
        READ_OVER: (SCHEDULED, NOTHING),
        RUN: (IDLE, RUN_NOW),
        HOLD_UP: (SCHEDULED, NOTHING),
        DISK: (SCHEDULED, NOTHING),
    },
    READING: {WANT: (READING_WANTED, NOTHING), READ_OVER: (IDLE, NOTHING)},
    READING_WANTED: {WANT: (READING_WANTED, NOTHING), READ_OVER: (IDLE, RUN_NOW)},
    WAITING: {WANT: (SCHEDULED, CALL_SOON), READ: (READING_WAITING, NOTHING), DISK: (SCHEDULED, CALL_SOON)},
    READING_WAITING: {WANT: (READING_WANTED, NOTHING), READ_OVER: (WAITING, NOTHING)},
}


class Gate:
    """Used in the loop's thread; other threads may read `waits`. `call_soon` makes the event loop report RUN."""

    def __init__(self, call_soon: Callable[[], object], run: Callable[[], object]) -> None:
        self._call_soon = call_soon
        self._run = run
        self.state: str = IDLE

    def happened(self, event: str) -> None:
        """Change the state. Raises KeyError for an event that cannot happen in this state."""
        self.state, action = TRANSITIONS[self.state][event]
        if action is RUN_NOW:
            self._run()
        elif action is CALL_SOON:
            self._call_soon()

    def want(self) -> None:
        if self.state is not SCHEDULED:
            self.happened(WANT)

    @property
    def waits(self) -> bool:
        return self.state is WAITING or self.state is READING_WAITING
