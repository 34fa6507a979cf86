"""Decisions, by subject: from state and command to events, a reply and effects.

handlers                 `decide` itself
decision                 the result of a command; the register of deciding functions; common checks
queues                   declaring, altering, pausing and deleting queues; arriving messages; statistics
stages, links, groups, leases, transactions, exchanges, recordings, cleaning
outcomes                 outcomes of single messages of a lease's batch
dead_letters             the end of deliveries, retries and dead letters
losses                   counts of refused and dropped messages
immediate                messages that are stored only if a link takes them
routes                   messages sent through exchanges
explanations             why a consumer does not receive the next message
lifetimes                when a queue or an exchange ends on its own
moves                    messages that an operator moves, copies, redrives or replaces
purges                   purged messages: all waiting ones, named ones, cancelled ones
time                     expiry, delays, locks and abandoned leases; the start of the broker
"""
