"""Decisions, by subject: from state and command to events, a reply and effects. They read the state and change nothing.

handlers                 `decide` itself
decision                 the result of a command; the register of deciding functions; common checks
queues                   queues: declare, alter, pause, fill, purge, describe
stages                   messages and outcomes that wait for a publish
links, leases            acquire, settle and return, for links and for Spark's leases
outcomes                 outcomes of single messages of a lease's batch
outcome_checks           whether the messages of a batch may still get outcomes
dead_letters             the end of deliveries; messages that were rejected, tried too often, or expired
immediate                messages that are stored only if a link takes them
exchanges, routes        exchanges and bindings; messages sent through them
lifetimes                when a queue or an exchange ends on its own, and the links that this depends on
moves                    messages sent to another queue
transactions             posted and retired messages, commit and rollback
time                     messages and leases whose time has come; the start of the broker
recordings               settled messages that go to the archive
cleaning                 payloads that the cleaner copies, and parts of the log that it drops
"""
