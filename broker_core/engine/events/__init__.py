"""Events: decisions, by subject, which the journal holds and `apply` replays.

queues         of queues, links, leases, stages and time; the rules for changing an event
exchanges      of exchanges, bindings, and links as far as lifetimes depend on them
moves          of messages that change their queue, and of queues that were altered
outcomes       of single messages of a lease's batch
transactions   of open transactions, which are not journaled
passes         of what goes to the archive's table
codec          events as JSON in a journal record

An event is a decision (these rows, this outcome), never a command. The rules for changing one stand in `queues`.
"""
