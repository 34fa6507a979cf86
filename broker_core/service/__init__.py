"""A running broker: one engine state, one journal, one lock, one clock.

broker              `BrokerService`: the calls of all planes; start and stop, housekeeping
turn                one hold of the lock: commands in, replies out, and when they may leave
locked_view         queues and exchanges, read by a caller that holds the lock
block_reads         slices of blocks for a reader, counts for a plan
missing_rows        messages that a read needs and the journal no longer has
nodes               queues and exchanges, read without the lock
connections         connections of clients over all planes
queue_counts        counts of all queues, as columns
history             depth and rates of queues over the last hour
histograms          duration of syncs, delay of the AMQP loop
clock, ticker       wall time and uptime; the thread that executes due ticks
attributes          priority, times, group and key of messages, read from their batches before the lock
routing             routing keys, headers and selectors of messages, read before the lock
matching, bitmaps   the matches of a selector: evaluated once, cached as bitmaps
blocked_producers   producers that wait for capacity in a full queue
cleaning            drops segments of the journal that are no longer needed
journal_usage       how much of the journal is needed, and by whom
relocation          copies of needed payloads at the end of the log
startup             the state from the journal; the declarations of the settings
reloading           settings that were read again
copying             the copy in an object store; the status of the broker
alarms, watch       current problems as data; the thread that looks for them
damage              messages whose payload is damaged
recordings          the broker, as the recorder of the archive sees it
allocator           gives free memory back to the system

A reply, also a refusal, leaves when the journal is durable up to the end of the log at the time of the decision. The records of
one turn are one group of the log: after a crash either all of them exist or the group is missing.

Time is an argument of the engine, `Now(wall, up)`. Events store it, and it never goes back. Leases and locks count uptime. The
matches of a selector are cached as bitmaps within a budget, and evaluated again after a restart. A search stops at the first row
that is not evaluated and reports it. The caller evaluates a chunk and asks again.
"""
