"""State and event to the next state, by subject: the only code that changes the state, live and at recovery.

handlers       `apply` itself, and the table of what applies each event
transitions    how rows change their state, and what follows from it
queues         queues and the messages that come into them
stages         messages and outcomes that wait for a publish
links          messages that are acquired, settled and returned; subscriptions
leases         Spark's leases
lifetimes      the links to a node
outcomes       outcomes of single messages, before their batch is settled
exchanges      exchanges and bindings, and messages sent through them
moves          moves, copies, redrives
transactions   open transactions
passes         what goes to the archive's table
cleaning       payloads that were copied ahead, parts of the log that are gone
time           what was due; the start of the clock

What follows only from having a position is derived here, from the state alone: an older value that is replaced, the oldest of
a ring that is dropped, a duplicate in a publish that is left out.
"""
