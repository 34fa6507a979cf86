"""Rows of a block as columns of numbers. These modules do not depend on queues.

states                    the states of a message, and the table of transitions
obstacles                 why a consumer does not receive the next message
blocks, runs              64 Ki rows of one queue; places of their payloads in the journal
intervals                 parts of the journal
rowset                    sets of messages
series, packing, values   compact columns; their persisted form; JSON values
attributes, dictionary    the values that a queue needs from messages; names that rows store as codes
overlays, encoded_maps    annotations that were added after a message arrived; AMQP maps that are merged
group_states              bytes that are kept with a message group
failures                  the last failed deliveries of a message
waiting                   where AVAILABLE messages wait; how far back a return moves a consumer
totals, losses, counters  counts since the start of the broker; messages that were refused or dropped; counts by key
timetable                 when something is due
limits                    every limit of the engine, with unit and reason
"""
