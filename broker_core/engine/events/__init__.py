"""Events: the decisions that the journal holds, by subject. An event changes the state by its method `apply`.

event          the base class, and `apply`
codec          events as JSON in a journal record; the rule for changing one
transitions    how rows change their state, and the consequences
queues         queues, and messages that arrive
stages         messages and outcomes that wait for a publish
links          acquired, settled and returned messages; subscriptions
leases         Spark's leases
lifetimes      links to a queue or an exchange
outcomes       outcomes of single messages of a lease's batch
exchanges      exchanges and bindings; messages sent through them
moves          messages that change their queue
transactions   open transactions, which are not journaled
recordings     settled messages that are written to the archive
cleaning       payloads that were copied, and parts of the log that were removed
time           messages that expire or fall due; the start of the broker

Import events from here: `from ..engine import events as e`, then `e.Acquired`. An event contains its whole effect: its fields in
the journal, the change of the state (`apply`), the consumers to wake (`wakes`) and the nodes that may end (`may_end`).
"""

from .cleaning import Dropped, Relocated, Repacked, StagedRelocated
from .codec import decode, encode
from .event import Event, Together, apply
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
from .queues import BlockPacked, Enqueued, Purged, QueueAltered, QueueDeclared, QueueDeleted, QueuePaused
from .recordings import RecordingBegun, RecordingEnded
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
    "Posted",
    "Published",
    "Purged",
    "QueueAltered",
    "QueueDeclared",
    "QueueDeleted",
    "QueuePaused",
    "ReadDropped",
    "RecordingBegun",
    "RecordingEnded",
    "Redriven",
    "Relocated",
    "Renewed",
    "Repacked",
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
    "apply",
    "decode",
    "encode",
]
