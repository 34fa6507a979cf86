"""Names of message annotations and link properties. docs/queues.md explains them."""

from __future__ import annotations

from ..amqp.types import Symbol

DELIVERY_TIME = Symbol("x-opt-delivery-time")  # milliseconds since 1970
DELIVERY_DELAY = Symbol("x-opt-delivery-delay")  # milliseconds after the arrival

RETRY_DELAY = Symbol("x-opt-retry-delay")  # milliseconds, in a modified outcome for a queue without its own delay

REPORTS = Symbol("penstock:reports-received")  # of a link whose receiver reports the deliveries that its application received

# Of a dead letter (`reading.dead_letters`). Clients recognize it by the first one.
DEATH_REASON = Symbol("x-opt-death-reason")
DEATH_QUEUE = Symbol("x-opt-death-queue")
DEATH_SEQUENCE = Symbol("x-opt-death-sequence")
DEATH_TIME = Symbol("x-opt-death-time")
DEATH_ERROR = Symbol("x-opt-death-error")

# Before the quoted name of an application property that a program of Service Bus has changed.
CHANGED_PROPERTY = "x-opt-changed-property:"
