"""The priority of a child process, which works while its parent is idle."""

from __future__ import annotations

import os
import sys
from typing import Any

#: Arguments of Popen with which only the parent receives a terminal's Ctrl-C. A new session would also do, but Linux divides the
#: processors among sessions first (sched(7), autogroup), so `step_back` would have no effect.
OWN_GROUP: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}


def step_back(nice: int) -> None:
    """Give this process less of a shared processor than its parent: at 5 the parent gets 3/4 of it, at 10 9/10."""
    os.nice(nice)
    if hasattr(os, "sched_setscheduler"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # does not interrupt other processes when it wakes up
