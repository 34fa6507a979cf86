"""Commands: requests to the engine, by subject. `events` and `decide` have the same file names.

command        the type of a command; `Now`
queues         queues, and messages that arrive
stages         messages that wait, unseen, until they are published
links          links: subscribe, acquire, browse, settle, release
leases         Spark's leases
lifetimes      links to a node, and nodes that end on their own
outcomes       outcomes of single messages of a lease's batch
exchanges      exchanges and bindings, and messages sent through them
moves          messages that change their queue
transactions   transactions
recordings     settled messages that go to the archive
cleaning       the cleaner: payloads to copy, parts of the log to drop
time           the passing of time; the start of the broker

Import commands from here: `from ..engine import commands as c`, then `c.Acquire`. A single message is a batch of one.
"""

from ..model.dispositions import Retry
from ..model.publish_keys import PublishKey
from .cleaning import Drop, Relocate, RelocatedRows, RelocateStaged, Repack
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
    DeclareQueue,
    DeleteQueue,
    Enqueue,
    EnqueueImmediate,
    EnqueueReply,
    ImmediateReply,
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
from .time import StartBroker, Tick
from .transactions import BeginTransaction, DischargeTransaction, FailTransaction, Post, Retire, TimeOutTransactions

__all__ = [
    "Acquire",
    "AcquireBatch",
    "AlterQueue",
    "BeginRecording",
    "BeginTransaction",
    "Bind",
    "Browse",
    "Browsed",
    "CloseLink",
    "Command",
    "Copy",
    "DeclareExchange",
    "DeclareQueue",
    "DeleteExchange",
    "DeleteLease",
    "DeleteQueue",
    "Discard",
    "DiscardMessages",
    "DischargeTransaction",
    "Drop",
    "EndNode",
    "EndRecording",
    "Enqueue",
    "EnqueueImmediate",
    "EnqueueReply",
    "EnterLease",
    "FailTransaction",
    "FinishBatches",
    "ImmediateReply",
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
    "Redrive",
    "Release",
    "ReleaseLease",
    "Relocate",
    "RelocateStaged",
    "RelocatedRows",
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
    "StartBroker",
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
