"""Consumers of a queue beside one another: exclusive ones, and a single active one (Q5, Q22). Who only browses consumes nothing.

| option `consumers` | a second consumer | an exclusive link (`Subscribe.exclusive`) |
|---|---|---|
| all | shares | is refused where anybody consumes; beside it nobody may |
| exclusive | is refused | as every link of this queue is |
| single | waits, until the active one ends; then the one of the highest priority goes on, of these the oldest | as with `all` |

A link consumes from its attach to its end, with credit or without. A lease consumes while it holds a batch: between two of them
another may go on, and a query that has stopped locks nobody out. So no two consumers of a *single* queue hold messages at a time,
and a newcomer of a higher priority waits like everybody: to change over at once would let two work together. What a link that
has ended said in an open transaction it still holds.
"""

from __future__ import annotations

from ...errors import InUse
from .queue import Queue


def check_link(queue: Queue, exclusive: bool) -> None:
    """InUse unless another link may consume the queue."""
    if queue.exclusive:
        raise InUse(f"queue {queue.name!r} has an exclusive consumer: no other link may consume it before that one ends")
    if (exclusive or queue.rules.consumers == "exclusive") and (queue.subscriptions or queue.batches):
        raise InUse(
            f"queue {queue.name!r} is consumed by {len(queue.subscriptions)} links and {len(queue.batches)} leases that hold a "
            "batch: an exclusive consumer may come when they have ended"
        )


def check_lease(queue: Queue) -> None:
    """InUse unless a lease that holds nothing may take a batch."""
    alone = queue.rules.consumers == "exclusive"
    if queue.exclusive or (alone and queue.subscriptions):
        raise InUse(f"queue {queue.name!r} has an exclusive consumer, a link: a lease may acquire when that has ended")
    if alone and queue.batches:
        raise InUse(f"queue {queue.name!r} takes one consumer at a time, and another lease holds a batch of it")


def may_take(queue: Queue, holder: int) -> bool:
    """Say whether it is the turn of this link, or (0) of a lease that holds nothing: else it finds the queue empty."""
    return queue.active is None or queue.active == holder


def joined(queue: Queue, holder: int, exclusive: bool) -> None:
    """A link has subscribed."""
    if exclusive:  # what the option says is asked anew of each newcomer: it may be altered
        queue.exclusive = holder
    reconsider(queue)


def left(queue: Queue, holder: int, held: int) -> None:
    """A link's subscription is gone. `held`: messages that it still holds, as open transactions say something of them."""
    if queue.exclusive == holder:
        queue.exclusive = 0
    if queue.active == holder:
        queue.outlasting = held
    reconsider(queue)


def let_go(queue: Queue, holder: int, messages: int) -> None:
    """A link that has ended, or a lease, holds so many fewer."""
    if outlasts(queue, holder):
        queue.outlasting -= messages
        reconsider(queue)


def began(queue: Queue, holder: int) -> None:
    """A lease holds a batch."""
    queue.batches.add(holder)
    reconsider(queue)


def ended(queue: Queue, holder: int) -> None:
    """Note that a link consumes no more."""
    queue.batches.discard(holder)
    reconsider(queue)


def outlasts(queue: Queue, holder: int) -> bool:
    """Say whether this link has ended and is active still, by what it said in open transactions."""
    return queue.outlasting > 0 and queue.active == holder


def reconsider(queue: Queue) -> None:
    """Say who is active: who was and is still there, else the next. After a change of consumers, or of the option."""
    if queue.rules.consumers != "single":
        queue.active, queue.outlasting = None, 0
    elif not queue.outlasting and queue.active not in queue.subscriptions and queue.active not in queue.batches:
        following = max(queue.subscriptions.values(), key=lambda each: (each.priority, -each.holder), default=None)
        queue.active = max(queue.batches, default=0) or (0 if following is None else following.holder)
