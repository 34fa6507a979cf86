"""State of the broker, and pure questions about it. Nothing here decides or changes a message.

state                                   the broker's whole state and its snapshot
queue, options, policies, names         a queue; what may be declared of it; policies by pattern; what names may be
admission, capacity, duplicates         which arriving messages are stored, and how many
last_values, retention                  older values that a newer one replaces; payloads that are still there
consumers, search, groups, exclusions   who may consume, and which messages: exclusive consumers, groups, refusals
lease, reads, batch_outcomes            leases and their batches; what is known of reads; outcomes of single messages
exchange, exchange_options, bindings    exchanges, what may be declared of them, and what leads from them to queues
topics, headers, routes                 patterns of routing keys, bindings by headers, which message goes where
stages, publish_keys, transaction       writes before they are published; their keys; open transactions
transfer, dispositions                  messages on their way to another queue; how a delivery ends, and when the next one is
passes                                  settled messages on their way into the archive's table

Survives a restart: queues and the columns of their blocks, exchanges and bindings, durable subscriptions (queues named
`sub:…`), passes into the archive's table, message ids against duplicates, last values, leases with their batches and epochs,
stages, publish keys.

Derived anew at a start: holders of groups, counts of AVAILABLE messages per block, what is due when.

Gone with the broker: open transactions, which are rolled back; what links held, which the command `Recovered` gives back.
"""
