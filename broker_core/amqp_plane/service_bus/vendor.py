"""Names of Azure Service Bus that travel on the wire.

Source: the vendor's "AMQP 1.0 in Azure Service Bus: request-response-based operations", and the sources of its SDKs.
"""

from __future__ import annotations

from ...amqp.types import Symbol

# Parts of addresses, which clients write in any case.
CBS, MANAGEMENT, DEAD_LETTERS, SUBSCRIPTIONS = "$cbs", "$management", "$deadletterqueue", "Subscriptions"

# Of requests to $cbs.
PUT_TOKEN = "put-token"

BATCH_FORMAT = 0x80013700  # of a message whose data sections are encoded messages

TRANSFER_DESTINATION = Symbol("com.microsoft:transfer-destination-address")  # of a sender's attach: send via another entity

# Annotations of messages.
SCHEDULED = Symbol("x-opt-scheduled-enqueue-time")
SEQUENCE_NUMBER = Symbol("x-opt-sequence-number")
ENQUEUED_TIME = Symbol("x-opt-enqueued-time")
LOCKED_UNTIL = Symbol("x-opt-locked-until")
STATE = Symbol("x-opt-message-state")  # of a peeked message, or a deferred one
DEAD_LETTER_SOURCE = Symbol("x-opt-deadletter-source")

# States of messages.
ACTIVE_STATE, DEFERRED_STATE, SCHEDULED_STATE = 0, 1, 2
# Of a link to a session: the filter of its source, properties of the attach and of the answer.
SESSION_FILTER = Symbol("com.microsoft:session-filter")
WAITS_MS = "com.microsoft:timeout"
SESSION_LOCKED_UNTIL = Symbol("com.microsoft:locked-until-utc")
TICKS_OF_1970 = 621_355_968_000_000_000  # of 100 nanoseconds, since the year 1

# Properties of a dead letter, and of the error with which a receiver makes one.
REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"

# Conditions of errors.
MESSAGE_LOCK_LOST = "com.microsoft:message-lock-lost"
MESSAGE_NOT_FOUND = "com.microsoft:message-not-found"
SESSION_LOCK_LOST = "com.microsoft:session-lock-lost"
SESSION_CANNOT_BE_LOCKED = "com.microsoft:session-cannot-be-locked"
TIMEOUT = "com.microsoft:timeout"
SERVER_BUSY = "com.microsoft:server-busy"
ALREADY_EXISTS = "com.microsoft:entity-already-exists"

# Requests to $management.
RENEW_LOCK = "com.microsoft:renew-lock"
RECEIVE_BY_NUMBER = "com.microsoft:receive-by-sequence-number"
PEEK = "com.microsoft:peek-message"
SCHEDULE = "com.microsoft:schedule-message"
CANCEL = "com.microsoft:cancel-scheduled-message"
SETTLE = "com.microsoft:update-disposition"
RENEW_SESSION_LOCK = "com.microsoft:renew-session-lock"
GET_SESSION_STATE = "com.microsoft:get-session-state"
SET_SESSION_STATE = "com.microsoft:set-session-state"
LIST_SESSIONS = "com.microsoft:get-message-sessions"
ASSOCIATED_LINK = "associated-link-name"  # a property of a request: the link of its session
ADD_RULE, REMOVE_RULE = "com.microsoft:add-rule", "com.microsoft:remove-rule"
ENUMERATE_RULES = "com.microsoft:enumerate-rules"

# Descriptors of rules, of their filters and actions, in responses.
RULE, EMPTY_ACTION = 0x0000013700000004, 0x0000013700000005
SQL_FILTER, TRUE_FILTER, FALSE_FILTER, CORRELATION_FILTER = (0x000001370000000 + code for code in (6, 7, 8, 9))
