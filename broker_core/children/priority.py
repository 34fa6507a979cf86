"""The place of a child process beside its parent: it works when the parent does not."""

from __future__ import annotations

import os
import sys
from typing import Any

#: Arguments of Popen that keep a terminal's Ctrl-C for the parent. A session of its own would do so as well, but Linux shares
#: processors out among sessions first (sched(7), autogroup), so that `step_back` would count for nothing.
OWN_GROUP: dict[str, Any] = {"process_group": 0} if sys.version_info >= (3, 11) else {"start_new_session": True}


def step_back(nice: int) -> None:
    """Give this process less of a shared processor than its parent.

    Args:
        nice: steps below the parent's priority: at 5 the parent gets three quarters of a shared processor, at 10 nine tenths.
    """
    os.nice(nice)
    if hasattr(os, "sched_setscheduler"):
        os.sched_setscheduler(0, os.SCHED_BATCH, os.sched_param(0))  # it interrupts nobody when it wakes up
