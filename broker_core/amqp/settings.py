"""Identity and limits of one end of a connection. A peer that breaks a limit gets the condition of that limit."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from .errors import LocalProtocolError
from .frames import MIN_MAX_FRAME_SIZE
from .types import Value


class Role(Enum):
    """Role in opening the transport: the client sends the first header, and is the SASL client."""

    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """Settings of our end of a connection.

    - `max_frame_size`: octets of a frame that we accept (512 at least); `first_frame_size`: before the peer's open;
      `sasl_frame_size`: inside SASL (both 512 in the specification; some clients need more).
    - `channel_max`, `handle_max`: the highest numbers, one less than the limit of channels and handles.
    - `idle_time_out`: milliseconds, sent to the peer; we give up after twice that (2.4.5). `min_remote_idle_time_out`:
      milliseconds; a peer that asks for less is refused.
    - `incoming_window`, `outgoing_window`: transfer frames per session; a flow renews the incoming one when half of it is used.
    - `max_message_size`: octets of a delivery on a link that sets no other limit, 0 for any. `max_unfinished_size`: octets of
      incomplete deliveries, over all links, 0 for any; the link that exceeds it is detached.
    - `answers_violations`: answer an error of the peer when it is read, or after our own open, begin or attach. False leaves
      the moment to the application (`Connection.answer`), which may have earlier frames to answer first.
    - `errant_link_ends_session`: input for a link that we detached with an error ends the session (2.6.5). False drops it, for
      peers whose transfers were on their way.
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
    answers_violations: bool = True
    errant_link_ends_session: bool = True
    offered_capabilities: tuple[str, ...] = ()
    properties: Mapping[str, Value] | None = None

    def __post_init__(self) -> None:
        if self.max_frame_size < MIN_MAX_FRAME_SIZE or self.first_frame_size < MIN_MAX_FRAME_SIZE:
            raise LocalProtocolError(f"a frame size below {MIN_MAX_FRAME_SIZE} is not allowed")
        if self.incoming_window < 1:
            raise LocalProtocolError("a session needs an incoming window of at least one frame")
