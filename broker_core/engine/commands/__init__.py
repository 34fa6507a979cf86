"""Commands: requests to the engine, by subject. `events` and `decide` have modules of the same names.

command, queues, stages, links, groups, leases, lifetimes, outcomes, exchanges, losses, moves, transactions, recordings, cleaning,
time, explanations

Import them by `from ..engine import commands as c`, then `c.Acquire`. The imports below are the list of all commands.
"""

from ..model.dispositions import Retry
from ..model.publish_keys import PublishKey
from .cleaning import Drop, Relocate, RelocatedRows, RelocateStaged, Repack
from .command import Command, Maker, Now
from .exchanges import Bind, DeclareExchange, DeleteExchange, ListExchanges, Route, Sent, Unbind
from .explanations import ConsumerState, DescribeConsumers, Explain, Explained, Hindrance, QueueState
from .groups import LockGroup, RenewGroupLock, SetGroupState
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
from .links import (
    Acquire,
    AcquireDeferred,
    Browse,
    Browsed,
    Release,
    RenewLock,
    Settle,
    Subscribe,
    Taken,
    Unsubscribe,
    command_of,
)
from .losses import CountRefused
from .moves import Copy, DeathGroup, DiscardMessages, Move, Redrive, Replace, Shifted
from .outcomes import SetAside, StageOutcomes
from .queues import (
    AlterQueue,
    CancelDelayed,
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
    Stat,
    Stores,
)
from .recordings import BeginRecording, EndRecording, ListBacklogs
from .stages import Discard, IsPublished, ListStages, Publish, StageMessages
from .time import StartBroker, Tick
from .transactions import BeginTransaction, DischargeTransaction, FailTransaction, Post, Retire, TimeOutTransactions
