"""Reasons why a consumer does not receive the next message. The values are public: never rename one."""

from __future__ import annotations

from enum import Enum


class Obstacle(str, Enum):
    """A consumer without an obstacle receives the next message."""

    # Of the queue
    PAUSED = "paused"
    EMPTY = "empty"
    DELAYED = "delayed"  # all waiting messages are delayed
    DEFERRED = "deferred"  # all waiting messages are deferred
    # Of the consumer among others
    NO_GROUP = "no-group"  # it takes the messages of one group, and has locked none
    INACTIVE = "inactive"  # the queue has a single active consumer, which is another one
    EXCLUSIVE = "exclusive"  # another consumer excludes a lease
    PRIORITY = "priority"  # a consumer with a higher priority, or one that evaluates its selector, comes first
    # Of a link
    DETACHED = "detached"  # its client may come back
    SOCKET = "socket"  # the client does not read from it
    WINDOW = "window"  # the client's session accepts no more frames
    CREDIT = "credit"  # none, or all of it is used by messages that are being sent
    UNSETTLED = "unsettled"  # the limit on deliveries of a link
    UNSETTLED_CONNECTION = "unsettled-connection"  # the limit on deliveries of its session or connection
    SENDING = "sending"  # of messages that it has acquired
    RESUMING = "resuming"  # its deliveries before a reconnect come first
    # Of a lease
    BATCH = "batch"  # it holds one
    UNREAD = "unread"  # it waits, because it has left batches unread
    SILENT = "silent"  # its query asks for no batch
    # Of the messages
    SELECTOR = "selector"
    UNEVALUATED = "unevaluated"  # the selector is not evaluated for them yet
    EXPIRED = "expired"
    REFUSED = "refused"  # by this consumer
    OTHER_GROUP = "other-group"  # it takes the messages of one group
    GROUP = "group"  # another consumer holds their group
    RETRY = "retry"  # they come after a message that waits for its retry
