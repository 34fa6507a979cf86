"""The state of the broker, and questions about it.

state                                   the whole state, and its snapshot
queue, options, policies, names         a queue; its options; options by name pattern; valid names, names of takers
admission, capacity, duplicates         which arriving messages a queue stores, and how many
last_values, retention                  older values that a newer one replaces; payloads that still exist
consumers, search, groups, exclusions   which consumer may take which messages
lease, reads, batch_outcomes            leases and their batches; reads of a batch; outcomes of single messages
exchange, exchange_options, bindings    exchanges, their options, and the bindings that lead to queues
topics, header_bindings, routes         patterns of routing keys, bindings by headers, the queues of each message
stages, publish_keys, transaction       writes before their publish; their keys; open transactions
transfer, dispositions                  messages that change their queue; how a delivery ends, and when the next one begins
recordings                              settled messages that are written to the archive

A restart loses open transactions, which are rolled back, and deliveries to links, whose messages `StartBroker` returns.
"""
