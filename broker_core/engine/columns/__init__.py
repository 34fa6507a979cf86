"""Rows of a block as columns of numbers. Knows no queue.

states                    the table of a message's states and transitions
blocks, runs              64 Ki rows of one queue; where the journal holds their payloads
intervals                 parts of the journal, as those whose payloads are gone
rowset                    which messages: ranges or a bitmap per block
series, packing, values   columns that cost what they hold; their persisted form; values as JSON
attributes, dictionary    what a queue has to know of messages; names that rows carry as numbers
overlays                  annotations that were added after a message arrived
waiting, returns          where AVAILABLE messages wait; how far back a return sends a consumer
totals                    what has happened to a queue's messages since the broker started
timetable                 when something is due
limits                    every limit of the engine, with unit and reason

A message's state, delivery count, holder and outcome are columns of `blocks`. Holders are numbers: even ones are batches of
leases, which are persisted; odd ones are links, which end with the broker. A column that no message needs is not allocated.
"""
