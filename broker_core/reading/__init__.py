"""Rows of a queue as record batches, for every reader: whether live, acquired or archived.

stored         the one way to read: cuts of blocks, their payloads, browse
gathering      rows of several records as one batch
recent         batches that have just been stored, so that nobody reads them back
mapped         where payloads lie, for a reader on this host
dead_letters   the annotations that say why and where a message died

An archived block is opened by `stored.open_block` alone.
"""
