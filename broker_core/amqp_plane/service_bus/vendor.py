"""Names of Azure Service Bus that travel on the wire.

Source: the vendor's "AMQP 1.0 in Azure Service Bus: request-response-based operations", and the sources of its SDKs.
"""

from __future__ import annotations

CBS, MANAGEMENT, DEAD_LETTERS = "$cbs", "$management", "$deadletterqueue"  # compared in lower case

# Of requests to $cbs.
PUT_TOKEN = "put-token"

# Conditions of errors.
MESSAGE_LOCK_LOST = "com.microsoft:message-lock-lost"
