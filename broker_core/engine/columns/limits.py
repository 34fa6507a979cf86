"""Every limit of the engine, with its unit and reason. Limits of sockets and files stand with their planes."""

from __future__ import annotations

SECOND = 1_000_000  # the engine's times are microseconds

ALIVE = 25 * SECOND  # a planner that has renewed its lease within this time is believed to run: it does so every 10 s
UNREAD_TIMEOUT = 60 * SECOND  # a batch that no task has read is given back when its planner is silent this long
UNREAD_FREE = 3  # batches in a row that a query may finish without reading before it must wait for the next one
UNREAD_PAUSE = SECOND // 10  # the first such wait; each further one is twice as long
UNREAD_PAUSE_MOST = 10 * SECOND  # who begins to read again has lost no more than this
STAGE_AGE = 24 * 3600 * SECOND  # of a write that nobody published, since its last addition: longer than any sane Spark job
STAGE_GRACE = 600 * SECOND  # from a start or a standstill until a write is given up: its driver may have waited for the broker
MAX_NAME = 255  # characters of the name of a queue, lease or stage
MAX_QUEUES = 10_000
MAX_LEASES = 100_000
MAX_STAGES = 100_000  # a task's attempt each: so many tasks may one write have
MAX_ENDED_WRITES = 10_000  # remembered, so that a publish asked for again says done: a lost answer is asked for within minutes
MAX_STAGED_BYTES = 64 << 30  # stored bytes of all stages together
MAX_PUBLISH_KEYS = 1_000_000  # of all users, some 200 bytes each
MAX_ELSEWHERE = 16_384  # characters of what a publish key keeps of its write's parts at other brokers: thousands of tasks
CLOCK_STEP = 24 * 3600 * SECOND  # of the wall clock, from one event to the next, that ages a publish key: beyond, it was set
PUBLISH_KEY_AGE = 365 * 24 * 3600 * SECOND  # since the last publish under it: longer than any query is down and goes on
MAX_SUBSCRIPTIONS = 100_000  # of one queue
MAX_EXCLUDED = 10_000  # messages not to be offered to one link again; who refuses more than that has no use for the queue
MAX_ANNOTATIONS = 4096  # bytes of what one *modified* adds to a message's annotations
MAX_OVERLAYS = 32  # different such additions to one message
MAX_OVERLAY_BYTES = 256 << 20  # of all messages of one queue that are in memory
MAX_ERROR_TEXT = 1024  # characters kept of what the one who rejected a message said
MAX_MALFORMED_TEXTS = 100  # different reasons why messages of one batch are malformed; the rest gets a general one
MAX_OUTCOMES = (
    10_000  # different ones (with their errors' texts, 10 MiB of them) of one batch, and of one write: beyond, texts are cut
)
MAX_PARTS = 100_000  # of one plan: a task of Spark each, and its driver holds no more with ease
MAX_ACQUIRE = 1 << 30  # messages of one acquisition
MAX_TRANSACTIONS = 20_000  # open in all: a session of a JMS client has one, also while it does nothing
MAX_USER_TRANSACTIONS = 10_000  # of one user, on all connections: half, so that others' sessions have some
MAX_OWN_TRANSACTIONS = 1_000  # of one connection
MAX_TRANSACTION_MESSAGES = 1_000_000  # of one transaction, sent and settled: its commit is one event, under one lock
MAX_TRANSACTION_BYTES = 4 << 30  # stored bytes that one transaction sends; all of them together are stages
TRANSACTION_AGE = 3600 * SECOND  # from the first work in a transaction to its discharge, in broker uptime
MAX_PURGED = 1 << 20  # messages of one command: who purges more asks again, and others get their turn in between
MAX_MOVED = 1 << 16  # of one command that moves, copies or redrives: each scattered one is a run of its own in the target
MAX_KEPT_BLOCKS = 64  # full ones of a broker that stay in memory for dead letters that may be redriven, about 1 MiB each
MAX_ORIGINS = 10_000  # queues that dead letters in one queue come from
MAX_TAKERS = 65_534  # leases and users of one queue whose names are kept: codes of two bytes. Rows of further ones name nobody
MAX_DUPLICATE_WINDOW = 10_000_000  # message ids that one queue remembers
MAX_KEYS = 10_000_000  # of one last-value queue
MAX_GROUPS = 1_000_000  # message groups of one queue with messages that are not settled
LISTED_GROUPS = 100  # of one lease or link, by name: enough to see who holds what
LOOKED_AT_GROUPS = 1 << 16  # of one queue, for that of its links: some milliseconds
MAX_EXCHANGES = 10_000
MAX_BINDINGS = 100_000  # of one exchange
MAX_KEY = 255  # characters of a routing key or a pattern, as AMQP 0-9-1 has it
MAX_PATTERN_WORDS = 64  # of one pattern: a word is a step for each message's key
MAX_LINKS = 100_000  # to one queue or exchange whose lifetime depends on them
MAX_ARGUMENTS = 64  # headers that one binding looks for
MAX_ROUTE_CACHE = 10_000  # routing keys of one exchange whose queues are remembered, until a binding changes
MAX_EXPIRED = 1 << 17  # expired messages that become dead letters in one look: half a second where they came one by one
EXPIRY_PERIOD = 2000  # milliseconds between two looks at what has expired and waits to be put away
NEVER = 1 << 62  # milliseconds, later than any time that somebody can name
