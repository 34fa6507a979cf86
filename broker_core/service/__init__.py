"""The broker as a running thing: one engine state, one journal, one lock, one clock.

broker              `BrokerService`: what every plane calls; start and stop, housekeeping
turn                one hold of the lock: commands in, replies out, and when they may leave
locked_view         queues and exchanges, read by a caller that holds the lock
block_reads         slices of blocks for a reader, counts for a plan
missing_rows        messages that a read needs and the journal no longer has
nodes               looks at queues and exchanges without the lock; a queue as others see it
connections         connections of clients over all planes
queue_counts        counts of all queues at once, as columns
history             depth and rates of queues over the last hour
histograms          how long syncs take, how late the AMQP loop is
clock, ticker       wall time and uptime; the thread that lets time pass for the engine
attributes          what the engine has to know of messages, read from their batches before the lock
routing             what an exchange's bindings have to know of messages, read before the lock
matching, bitmaps   which messages a selector matches: evaluated once, kept as bitmaps
blocked_producers   who waits for capacity in a full queue
cleaning            keeps the journal small
journal_usage       how much of the journal is needed, and by whom
relocation          copies of needed payloads at the end of the log
startup             the state that the journal leads to; the declarations of the settings
reloading           settings that were read again
copying             the copy elsewhere; what an operator hears of the broker itself
alarms, watch       what is wrong now, as data; the thread that looks
damage              messages whose payload is damaged
recordings          what the archiver asks of its broker
allocator           gives free memory back to the system

A reply leaves when the journal is durable up to where the log stood when it was decided; that holds for refusals too. What
one turn puts into the log is one group of it: after a crash all of that is there, or nothing.

Time is an argument of the engine, `Now(wall, up)`: journaled in events, never backwards; leases and locks count uptime. What
a selector matches is kept as bitmaps within a budget, and evaluated anew after a restart. A search stops where nothing is
evaluated yet and says so; the caller evaluates a chunk and asks again.
"""
