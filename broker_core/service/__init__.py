"""A running broker: one engine state, one journal, one lock, one clock.

broker, turn        `BrokerService`; `Turn`: commands in one hold of the lock
startup, reloading  state and declarations; settings read again
status              the status of the broker
nodes               queues and exchanges, without the lock
block_reads         slices of blocks for a reader; `missing_rows`: messages that the journal lacks
attributes, routing columns of messages that the engine needs
stays               holders of a message
matching, bitmaps   the matches of a selector
queue_counts        counts of all queues; `history`: their last hour; `histograms`: durations
alarms, watch       current problems; the thread that looks for them
events/             event messages for operators
connections         connections over all planes
blocked_producers   producers that wait for capacity
clock, ticker       wall time and uptime; the thread that executes due ticks
cleaning            drops segments of the journal; `journal_usage`, `relocation`: needed bytes, and their copies
copying             the copy in an object store
recordings          the recorder's view of the broker
damage, allocator   damaged payloads; free memory, returned to the system

Time is an argument of the engine, `Now(wall, up)`. Events store it, and it never goes back. Leases and locks count uptime.
"""
