"""Limits of what one peer may have and take: the settings of these names."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ...settings.keys import Settings


@dataclass(frozen=True)
class Limits:
    """Limits of one peer, where nothing else is said: numbers, bytes, seconds as the names say."""

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
    def of(cls, settings: Settings, connections: int | None = None) -> Limits:
        """Read them from the settings; `connections` instead of `amqp_max_connections`, if it is given."""
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
