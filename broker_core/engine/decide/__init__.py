"""State and command to events, a reply and effects, by subject. Reads the state and changes nothing.

handlers                       `decide` itself, and the table of what decides each command
decision                       what a command leads to; what most decisions ask first
effects                        who is told of events: consumers who are woken, nodes that may end
queues                         queues: declared, altered, paused, filled, purged, described
stages                         messages and outcomes that wait for a publish
links, leases, outcomes        acquire, settle, return; Spark's leases; outcomes of single messages
outcome_checks                 whether the messages of a lease's batch may still get outcomes
dead_letters                   messages that end without being processed: rejected, tried too often, expired
immediate                      messages that are stored only if a link takes them
exchanges, routes              exchanges and bindings; messages that go through one
lifetimes                      when a queue or an exchange ends by itself, and the links that this depends on
moves                          messages sent to another queue
transactions                   what is posted and retired, commit and rollback
time                           what is due, and what a restart ends
passes                         what goes to the archive's table
cleaning                       what the cleaner copies ahead and drops
"""
