"""The calls of consumers, between the stream reader and its brokers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol

from ..identity import Identity
from ..spark_versions import InputPartition
from .credit import Credit
from .lease import LeaseState


class StreamConsumer(Protocol):
    """Planner's view of queues, by offsets (`connector.offset`) in JSON.

    Every call is idempotent, and any can be the first after a restart. Calls come from one thread.
    """

    def has_begun(self) -> bool:
        """True if a checkpoint names the leases of the option `lease`."""
        ...

    def fix_tail(self) -> None:
        """Take no later messages: an `availableNow` run begins."""

    def advance(self, start: Mapping[str, Any], *, wait_ms: int, credit: Credit, once: bool = False) -> dict[str, Any]:
        """Settle everything up to `start`; return the offset after the next batch, or `start` without a batch.

        Without credit, return only an unfinished batch. Without messages, wait for `wait_ms`. With `once` no trigger follows:
        then wait until it is certain that there are no messages.
        """
        ...

    def plan(self, start: Mapping[str, Any], end: Mapping[str, Any]) -> Sequence[InputPartition]:
        """Return the tasks between two offsets."""
        ...

    def settle(self, end: Mapping[str, Any]) -> None: ...

    def counts(self) -> dict[str, Any]:
        """Return each queue's counts as of the last `advance`."""
        ...

    def close(self) -> None:
        """Close the connection. Leases stay."""


class BrokerConsumer(StreamConsumer, Protocol):
    """Consumer at one broker."""

    def identity(self) -> Identity:
        """Return the id that offsets name."""
        ...

    def lease_state(self) -> LeaseState:
        """Return the smallest state of this query's leases."""
        ...

    @property
    def is_busy(self) -> bool:
        """True in a run that ends, if the current call may take long although the broker answers. Any thread may ask."""
        ...
