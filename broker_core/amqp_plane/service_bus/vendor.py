"""Names of Azure Service Bus that travel on the wire.

Source: the vendor's "AMQP 1.0 in Azure Service Bus: request-response-based operations", and the sources of its SDKs.
"""

from __future__ import annotations

from ...amqp.types import Symbol

CBS, MANAGEMENT, DEAD_LETTERS = "$cbs", "$management", "$deadletterqueue"  # compared in lower case

# Of requests to $cbs.
PUT_TOKEN = "put-token"

BATCH_FORMAT = 0x80013700  # of a message whose data sections are encoded messages

# Annotations of messages.
SCHEDULED = Symbol("x-opt-scheduled-enqueue-time")

# Conditions of errors.
MESSAGE_LOCK_LOST = "com.microsoft:message-lock-lost"
