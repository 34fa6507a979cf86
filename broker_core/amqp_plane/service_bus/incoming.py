"""Links on which a client sends, with refusals that the Python SDK can read.

This SDK waits for ever if a refused message is *released*, or if an error has no `info`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from ...amqp import Rejected
from ...amqp.deliveries import Delivery
from ...amqp.performatives import Error
from ..conditions import Refusal
from ..links.incoming_link import IncomingLink
from ..loop.confirmations import NoRoute


class DialectLink(IncomingLink):
    """Link on which a client sends messages or requests."""

    def refused(self, deliveries: list[Delivery], error: Exception) -> None:
        if isinstance(error, NoRoute):
            error = Refusal(error.condition, f"{error.description}: bind a queue, or declare the exchange with unroutable=drop")
        super().refused(deliveries, error)

    def _dispose(self, deliveries: list[Delivery], outcome: Any) -> None:
        if isinstance(outcome, Rejected) and outcome.error is not None:
            outcome = Rejected(error=with_info(outcome.error))
        super()._dispose(deliveries, outcome)


def with_info(error: Error) -> Error:
    return replace(error, info=error.info or {})
