"""Events: decisions, by subject, which the journal holds and `apply` replays. An event is a decision (these rows, this outcome),
never a command.

codec          events as JSON in a journal record; the rule for changing one
queues         of queues and the messages that come into them
stages         of messages and outcomes that wait for a publish
links          of messages that are acquired, settled and returned; of subscriptions
leases         of Spark's leases
lifetimes      of the links to a node
outcomes       of single messages of a lease's batch
exchanges      of exchanges and bindings, and of messages sent through them
moves          of messages that change their queue
transactions   of open transactions, which are not journaled
passes         of what goes to the archive's table
cleaning       of payloads that were copied ahead, and parts of the log that are gone
time           what was due; the start of the clock

Everything is imported from here: `from ..engine import events as e`, then `e.Acquired`.
"""

from .cleaning import Dropped, Relocated, Repacked, StagedRelocated
from .codec import Event, Together, decode, encode
from .exchanges import Bound, ExchangeDeclared, ExchangeDeleted, Routed, Unbound
from .leases import (
    BatchEnded,
    BatchPlanned,
    BatchRead,
    LeaseBegun,
    LeaseDeleted,
    LeaseFenced,
    LeaseFinished,
    LeaseTaken,
    LeftUnread,
    Renewed,
)
from .lifetimes import LinkGone, LinkOpened
from .links import Acquired, Excluded, HoldersLost, Looked, Returned, Settled, Subscribed, Unsubscribed
from .moves import Copied, Moved, Redriven
from .outcomes import MalformedFound, OutcomesStaged
from .passes import PassBegun, PassEnded
from .queues import BlockPacked, Enqueued, Purged, QueueAltered, QueueDeclared, QueueDeleted, QueuePaused, Retained
from .stages import Discarded, Published, ReadDropped, Staged
from .time import CameDue, ClockStarted, Delayed, Expired, Locked, TimePassed
from .transactions import Posted, Retired, TransactionBegun, TransactionEnded, TransactionFailed

__all__ = [
    "Acquired",
    "BatchEnded",
    "BatchPlanned",
    "BatchRead",
    "BlockPacked",
    "Bound",
    "CameDue",
    "ClockStarted",
    "Copied",
    "Delayed",
    "Discarded",
    "Dropped",
    "Enqueued",
    "Event",
    "ExchangeDeclared",
    "ExchangeDeleted",
    "Excluded",
    "Expired",
    "HoldersLost",
    "LeaseBegun",
    "LeaseDeleted",
    "LeaseFenced",
    "LeaseFinished",
    "LeaseTaken",
    "LeftUnread",
    "LinkGone",
    "LinkOpened",
    "Locked",
    "Looked",
    "MalformedFound",
    "Moved",
    "OutcomesStaged",
    "PassBegun",
    "PassEnded",
    "Posted",
    "Published",
    "Purged",
    "QueueAltered",
    "QueueDeclared",
    "QueueDeleted",
    "QueuePaused",
    "ReadDropped",
    "Redriven",
    "Relocated",
    "Renewed",
    "Repacked",
    "Retained",
    "Retired",
    "Returned",
    "Routed",
    "Settled",
    "Staged",
    "StagedRelocated",
    "Subscribed",
    "TimePassed",
    "Together",
    "TransactionBegun",
    "TransactionEnded",
    "TransactionFailed",
    "Unbound",
    "Unsubscribed",
    "decode",
    "encode",
]
