"""State and event to the next state, by subject: the only code that changes the state, live and at recovery.

handlers       `apply` itself, and the table of what applies each event
transitions    how rows change their state, and what follows from it
queues         queues, links, leases, stages
exchanges      exchanges and bindings
moves          moves, copies, redrives; altered queues
outcomes       outcomes of single messages, before their batch is settled
time           what was due
transactions   open transactions
passes         what goes to the archive's table

What follows only from having a position is derived here, from the state alone: an older value that is replaced, the oldest of
a ring that is dropped, a duplicate in a publish that is left out.
"""
