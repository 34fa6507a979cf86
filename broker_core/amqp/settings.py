"""Identity and limits of one end of a connection."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum

from .errors import LocalProtocolError
from .frames import MIN_MAX_FRAME_SIZE
from .types import Value


class Role(Enum):
    """The client sends the first header, and is the SASL client."""

    CLIENT = "client"
    SERVER = "server"


@dataclass(frozen=True, kw_only=True)
class ConnectionSettings:
    """Settings of our end. Sizes are in octets.

    `first_frame_size` is for frames before the peer's open and `sasl_frame_size` for frames inside SASL (both 512 in the
    specification; some clients need more). `channel_max` and `handle_max` are the highest numbers. `idle_time_out` is in
    milliseconds; a peer that asks for less than `min_remote_idle_time_out` is refused. The windows are in transfer frames per
    session. `max_message_size` is a link's default, `max_unfinished_size` limits incomplete deliveries over all links; 0 means
    any.

    If `answers_violations` is False, the application chooses when to answer an error (`Connection.answer`), after earlier frames.
    If `errant_link_ends_session` is False, input for a link that we detached with an error is dropped (2.6.5), for peers whose
    transfers were on their way.
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
