"""The objects that all links and connections of a plane share."""

from __future__ import annotations

import asyncio
from functools import partial

from ..security.access import Access
from ..service.broker import BrokerService
from ..settings.keys import Settings
from .links.sender_credit import SenderCredit
from .loop.commit_loop import CommitLoop
from .loop.effects import call


class PlaneContext:
    """The plane as its connections and links see it. For the loop's thread, except `call`."""

    def __init__(self, broker: BrokerService, access: Access, settings: Settings, loop: asyncio.AbstractEventLoop) -> None:
        self.broker, self._loop = broker, loop
        self.access, self.settings, self.nodes = access, settings, broker.nodes
        self.now = broker.uptime_s  # the clock of all time-outs, seconds: it stands still while the process does not run
        self.wall_ms = broker.wall_ms  # milliseconds since 1970
        self.audit = broker.audit
        self.create_on_use = broker.create_on_use
        self.call = partial(call, loop)
        self.sender_credit = SenderCredit(broker, self.call)
        self.commit_loop = CommitLoop(broker, loop, self.sender_credit.look)
