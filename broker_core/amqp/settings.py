"""What one end of a connection is and allows. Every limit has its unit; breaking one is answered with its condition."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from .errors import LocalProtocolError
from .frames import MIN_MAX_FRAME_SIZE
from .types import Value


class Role(Enum):
    """Who opened the transport: it sends the first header, and is the SASL client."""

    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, kw_only=True)
class Settings:
    """Of our end of a connection.

    `max_frame_size` octets we accept (512 at least); `first_frame_size` what we accept before the peer's open, and
    `sasl_frame_size` inside SASL (both 512 in the text; some clients need more). `channel_max` and `handle_max` are the highest
    numbers, one less than how many. `idle_time_out`: milliseconds, what we tell the peer; we give up after twice that (2.4.5).
    `min_remote_idle_time_out`: milliseconds, a peer that asks for less is refused. `incoming_window` and `outgoing_window`:
    transfer frames per session; the incoming one is renewed by a flow when half of it is used. `max_message_size`: octets a
    delivery may have on a link that says nothing else, 0 for any. `max_unfinished_size`: octets, over all links, of deliveries
    whose last frame has not come, 0 for any; the link that goes beyond is detached. `errant_link_ends_session`: input for a link
    that we detached with an error ends the session, as 2.6.5 says; False drops it, for peers whose transfers were under way.
    """

    container_id: str
    hostname: str | None = None
    max_frame_size: int = 65536
    first_frame_size: int = MIN_MAX_FRAME_SIZE
    sasl_frame_size: int = MIN_MAX_FRAME_SIZE
    channel_max: int = 255
    handle_max: int = 255
    idle_time_out: int | None = None
    min_remote_idle_time_out: int = 0
    incoming_window: int = 2048
    outgoing_window: int = 2048
    max_message_size: int = 0
    max_unfinished_size: int = 0
    errant_link_ends_session: bool = True
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Mapping[str, Value] | None = None

    def __post_init__(self) -> None:
        if self.max_frame_size < MIN_MAX_FRAME_SIZE or self.first_frame_size < MIN_MAX_FRAME_SIZE:
            raise LocalProtocolError(f"a frame size below {MIN_MAX_FRAME_SIZE} is not allowed")
        if self.incoming_window < 1:
            raise LocalProtocolError("a session needs an incoming window of at least one frame")
