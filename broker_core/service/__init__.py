"""A running broker: one engine state, one journal, one lock, one clock.

broker, turn        `BrokerService`, the calls of all planes, and regular work; `Turn`, commands in one hold of the lock
startup, reloading  the state from the journal, the declarations of the settings; settings that were read again
status              the status of the broker
nodes               queues and exchanges, read without the lock
block_reads         slices of blocks for a reader, counts for a plan; `missing_rows`: messages that the journal lacks
attributes, routing columns of messages that the engine needs, read before the lock
stays               the holder of a message, and the batches that had it
matching, bitmaps   the matches of a selector
queue_counts        counts of all queues; `history`: their last hour; `histograms`: durations
alarms, watch       current problems as data; the thread that looks for them
events/             event messages for operators
connections         connections of clients over all planes
blocked_producers   producers that wait for capacity in a full queue
clock, ticker       wall time and uptime; the thread that executes due ticks
cleaning            drops segments of the journal; `journal_usage`, `relocation`: needed bytes, and their copies
copying             the copy in an object store
recordings          the broker, as the recorder of the archive sees it
damage, allocator   messages whose payload is damaged; free memory, given back to the system

Time is an argument of the engine, `Now(wall, up)`. Events store it, and it never goes back. Leases and locks count uptime.
"""
