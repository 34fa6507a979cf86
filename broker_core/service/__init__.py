"""The broker as a running thing: one engine state, one journal, one lock, one clock.

broker              `BrokerService`: what every plane calls; start and stop, housekeeping
turn                one hold of the lock: commands in, replies out, and when they may leave
clock, ticker       wall time and uptime; the thread that lets time pass for the engine
attributes          what the engine has to know of messages, read from their batches before the lock
routing             what an exchange's bindings have to know of messages, read before the lock
matching, bitmaps   which messages a selector matches: evaluated once, kept as bitmaps
blocked_producers   who waits for capacity in a full queue
declared            declares at the start what the settings say
damage              messages whose payload is damaged
allocator           gives free memory back to the system
"""
