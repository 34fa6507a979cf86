"""Expiry policies (3.5.6): when a terminus that has no link ends, and what is granted of them (see `detached`)."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from ...amqp import Source, Target

#: What can happen to a link that is not ended for good.
DETACHED, SESSION_ENDED, CONNECTION_ENDED = range(3)
_BEGINS_AT = {"link-detach": DETACHED, "session-end": SESSION_ENDED, "connection-close": CONNECTION_ENDED}
NEVER = "never"


class Expiry(NamedTuple):
    """Expiry of a terminus: `timeout` seconds after the moment that its policy names."""

    policy: str = "session-end"
    timeout: int = 0

    def begins(self, moment: int) -> bool:
        """Return True if the timeout begins at this moment: DETACHED, SESSION_ENDED or CONNECTION_ENDED."""
        return moment >= _BEGINS_AT[self.policy]

    def ends(self, moment: int) -> bool:
        """Return True if the terminus ends at this moment: its timeout begins, and is 0."""
        return self.begins(moment) and not self.timeout


def granted(asked: Source | Target, longest: int) -> Expiry:
    """Grant the expiry that a terminus asks for, within limits. `longest`: seconds."""
    if asked.expiry_policy == NEVER:
        return Expiry("connection-close", longest)
    return Expiry(asked.expiry_policy, min(asked.timeout, longest))


def owned(expiry: Expiry) -> Expiry:
    """Return the expiry of a node that belongs to its connection, and ends with it."""
    return expiry._replace(timeout=0) if expiry.policy == "connection-close" else expiry
