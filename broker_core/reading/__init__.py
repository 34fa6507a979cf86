"""Rows of a queue as record batches, for every reader: live, acquired or archived.

slices        a copy of the columns of some rows of one block, made under the broker's lock
records       the rows of a slice, record by record of the journal
batches       slices as record batches of the columns that a reader wants
stored        messages in the form of the journal; packed blocks
mapping       locations of payloads, for a reader on this host
gathering     rows of several records as one batch
recent        batches that have just been stored
dead_letters  the annotations of a dead letter
failures      the last failed deliveries of a message
"""
