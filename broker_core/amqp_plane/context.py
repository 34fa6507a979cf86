"""The surroundings that all links and connections of a plane share: limits, clock, commit loop, and the broker."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass

from ..security.access import Access
from ..service.broker import BrokerService
from ..settings.keys import Settings
from .links.sender_credit import SenderCredit
from .loop.commit_loop import CommitLoop


@dataclass(frozen=True)
class PeerLimits:
    """Limits of one peer, from the settings of these names: numbers, bytes, seconds."""

    connections: int
    connections_per_user: int
    sessions: int
    links: int
    nodes_per_user: int
    detached_links_per_user: int
    detached_deliveries_per_user: int
    expiry_timeout_s: int
    credit: int
    unsettled_per_link: int
    unsettled_per_session: int
    unsettled_per_connection: int
    frame_bytes: int
    message_bytes: int
    check_user_id: bool
    login_timeout_s: float
    idle_timeout_s: float

    @classmethod
    def of(cls, settings: Settings, connections: int | None = None) -> PeerLimits:
        """Read the limits from the settings. `connections` replaces `amqp_max_connections`."""
        return cls(
            settings.amqp_max_connections if connections is None else connections,
            settings.amqp_max_connections_per_user,
            settings.amqp_max_sessions,
            settings.amqp_max_links,
            settings.amqp_max_nodes_per_user,
            settings.amqp_max_detached_links_per_user,
            settings.amqp_max_detached_deliveries_per_user,
            settings.amqp_max_expiry_timeout_s,
            settings.amqp_credit,
            settings.amqp_max_unsettled,
            settings.amqp_max_unsettled_per_session,
            settings.amqp_max_unsettled_per_connection,
            settings.amqp_max_frame_bytes,
            settings.max_message_bytes,
            settings.amqp_check_user_id,
            settings.amqp_login_timeout_s,
            settings.amqp_idle_timeout_s,
        )


class PlaneContext:
    """The surroundings of a plane's connections and links. For the loop's thread, except `call`."""

    def __init__(self, broker: BrokerService, access: Access, limits: PeerLimits, loop: asyncio.AbstractEventLoop) -> None:
        self.broker, self._loop = broker, loop
        self.access, self.limits, self.nodes = access, limits, broker.nodes
        self.now = broker.uptime_s  # the clock of all time-outs, seconds: it stands still while the process does
        self.wall_ms = broker.wall_ms  # milliseconds since 1970
        self.create_on_use = broker.create_on_use
        self.sender_credit = SenderCredit(broker, self.call)
        self.commit_loop = CommitLoop(broker, loop, self.sender_credit.look)

    def call(self, function: Callable[[], None]) -> None:
        """Have the event loop call `function`, from any thread. Does nothing if the plane has stopped."""
        with contextlib.suppress(RuntimeError):
            self._loop.call_soon_threadsafe(function)

    @property
    def checks_user_id(self) -> bool:
        """True if the property user-id of a message must name the user that sends it."""
        return self.limits.check_user_id and self.access.enforced
