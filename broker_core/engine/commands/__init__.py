"""Commands: requests to the engine, by subject. The same names stand in `events`, `decide` and `apply`.

command        what a command is; `Now`
queues         of queues and the messages that come into them
stages         of messages that wait, unseen, until they are published
links          of links: subscribe, acquire, browse, settle, release
leases         of Spark's leases
lifetimes      of the links to a node, and of nodes that end by themselves
outcomes       of single messages of a lease's batch
exchanges      of exchanges and bindings, and of messages sent through them
moves          of messages that change their queue
transactions   of transactions
passes         of what goes to the archive's table
cleaning       of the cleaner: payloads to be copied, parts of the log to be dropped
time           time has passed; the broker has started

Everything is imported from here: `from ..engine import commands as c`, then `c.Acquire`. A single message is a batch of one.
"""

from ..model.dispositions import Retry
from ..model.publish_keys import PublishKey
from .cleaning import Copied, Drop, Relocate, RelocateStaged, Repack
from .command import Command, Maker, Now
from .exchanges import Bind, DeclareExchange, DeleteExchange, ListExchanges, Route, Sent, Unbind
from .leases import (
    AcquireBatch,
    DeleteLease,
    EnterLease,
    FinishBatches,
    LeasedBatch,
    ListLeases,
    MeasureBatch,
    PlanBatches,
    ReadBatch,
    ReleaseLease,
    RenewLease,
    SettleRow,
)
from .lifetimes import CloseLink, EndNode, OpenLink
from .links import Acquire, Browse, Browsed, Release, Settle, Subscribe, Taken, Unsubscribe, command_of
from .moves import Copy, DiscardMessages, Move, Redrive, Shifted
from .outcomes import SetAside, StageOutcomes
from .queues import (
    AlterQueue,
    Appended,
    DeclareQueue,
    DeleteQueue,
    Delivered,
    Enqueue,
    EnqueueImmediate,
    Offer,
    PackBlock,
    PauseQueue,
    Purge,
    ResumeQueue,
    Stat,
    Stores,
)
from .recordings import BeginRecording, EndRecording, ListBacklogs
from .stages import Discard, IsPublished, ListStages, Publish, StageMessages
from .time import Recovered, Tick
from .transactions import BeginTransaction, Discharge, FailTransaction, Post, Retire, TimeOutTransactions

__all__ = [
    "Acquire",
    "AcquireBatch",
    "AlterQueue",
    "Appended",
    "BeginRecording",
    "BeginTransaction",
    "Bind",
    "Browse",
    "Browsed",
    "CloseLink",
    "Command",
    "Copied",
    "Copy",
    "DeclareExchange",
    "DeclareQueue",
    "DeleteExchange",
    "DeleteLease",
    "DeleteQueue",
    "Delivered",
    "Discard",
    "DiscardMessages",
    "Discharge",
    "Drop",
    "EndNode",
    "EndRecording",
    "Enqueue",
    "EnqueueImmediate",
    "EnterLease",
    "FailTransaction",
    "FinishBatches",
    "IsPublished",
    "LeasedBatch",
    "ListBacklogs",
    "ListExchanges",
    "ListLeases",
    "ListStages",
    "Maker",
    "MeasureBatch",
    "Move",
    "Now",
    "Offer",
    "OpenLink",
    "PackBlock",
    "PauseQueue",
    "PlanBatches",
    "Post",
    "Publish",
    "PublishKey",
    "Purge",
    "ReadBatch",
    "Recovered",
    "Redrive",
    "Release",
    "ReleaseLease",
    "Relocate",
    "RelocateStaged",
    "RenewLease",
    "Repack",
    "ResumeQueue",
    "Retire",
    "Retry",
    "Route",
    "Sent",
    "SetAside",
    "Settle",
    "SettleRow",
    "Shifted",
    "StageMessages",
    "StageOutcomes",
    "Stat",
    "Stores",
    "Subscribe",
    "Taken",
    "Tick",
    "TimeOutTransactions",
    "Unbind",
    "Unsubscribe",
    "command_of",
]
