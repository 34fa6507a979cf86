"""Events: the decisions that the journal holds, by subject. `commands` and `decide` have modules of the same names.

queues, stages, links, groups, leases, lifetimes, outcomes, exchanges, losses, moves, transactions, recordings, cleaning, time
event          the base class, and `apply`
codec          events as JSON in a journal record; the rule for changing one
transitions    how rows change their state, and the consequences

Import them by `from ..engine import events as e`, then `e.Acquired`. The imports below are the list of all events.
"""

from .cleaning import Dropped, Relocated, Repacked, StagedRelocated
from .codec import decode, encode
from .event import Event, Together, apply
from .exchanges import Bound, ExchangeDeclared, ExchangeDeleted, Routed, Unbound
from .groups import GroupLocked, GroupStateSet, GroupUnlocked
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
from .links import Acquired, Annotated, Excluded, HoldersLost, Looked, Returned, Settled, Subscribed, Unsubscribed
from .losses import MessagesLost, SentToExchange
from .moves import Copied, Moved, Redriven
from .outcomes import MalformedFound, OutcomesStaged
from .queues import BlockPacked, Enqueued, Purged, QueueAltered, QueueDeclared, QueueDeleted, QueuePaused
from .recordings import RecordingBegun, RecordingEnded
from .stages import Discarded, Published, ReadDropped, Staged
from .time import CameDue, ClockStarted, Delayed, Expired, Locked, TimePassed
from .transactions import Posted, Retired, TransactionBegun, TransactionEnded, TransactionFailed
