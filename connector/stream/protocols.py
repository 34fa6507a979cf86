"""The protocols of consumers, between the stream reader and its brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..identity import Identity
from ..spark_versions import InputPartition
from .credit import Credit
from .lease import LeaseState


class StreamConsumer(Protocol):
    """Planner's view of one queue or several, by offsets (`connector.offset`) in JSON.

    Every call is idempotent, and any can be the first after a restart. Calls come from one thread.
    """

    def has_begun(self) -> bool:
        """True if a checkpoint names the leases of the option `lease`."""
        ...

    def fix_tail(self) -> None:
        """Take no later messages: an `availableNow` run begins."""

    def advance(self, start: Mapping[str, Any], *, wait_ms: int, credit: Credit, once: bool = False) -> dict[str, Any]:
        """Settle everything up to `start`; return the offset after the next batch, or `start` without a batch.

        Without credit, return only an unfinished batch. Without messages, wait for `wait_ms`. With `once` no other trigger
        follows: then wait until it is certain that there are no messages.
        """
        ...

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Plan the tasks between two offsets."""
        ...

    def settle(self, end: Mapping[str, Any]) -> None:
        """Settle everything up to `end`."""

    def counts(self) -> dict[str, Any]:
        """Return the counts of each queue, as of the last `advance`."""
        ...

    def close(self) -> None:
        """Close the connection. Leases stay."""


class BrokerConsumer(StreamConsumer, Protocol):
    """Consumer at one broker."""

    def identity(self) -> Identity:
        """Return the id that its offsets name."""
        ...

    def lease_state(self) -> LeaseState:
        """Ask for the state of this query's leases by the option `lease`; return the first."""
        ...

    @property
    def is_busy(self) -> bool:
        """True if the current call may take long although the broker answers, in a run that ends. Any thread may ask."""
        ...
