"""Commands: requests to the engine, by subject. The same names stand in `events`, `decide` and `apply`.

queues         of queues, links, leases, stages and time; `Now`
exchanges      of exchanges, bindings, and links as far as lifetimes depend on them
moves          of messages that change their queue, and of queues that are altered
outcomes       of single messages of a lease's batch
transactions   of transactions
passes         of what goes to the archive's table

A lease's request comes in parts (enter, finish, acquire or plan), each decided on what the one before left. One planner, one
epoch.
"""
