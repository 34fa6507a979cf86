"""Rows of a queue as record batches, for every reader: live, acquired or archived.

slices         a copy of the columns of some rows of one block, made under the broker's lock
records        the rows of a slice, record by record of the journal
batches        slices as record batches of the columns that a reader asks for
stored         messages as the journal stores them; packed blocks
mapped         where payloads lie, for a reader on this host
gathering      rows of several records as one batch
recent         batches that have just been stored, so that nobody reads them back
dead_letters   the annotations that say why and where a message became a dead letter
unreadable     errors for messages that are gone or damaged

A reader takes slices (`service.slices`, `browse`, `turn.view.slices`), then builds `batches` or `record_slices` from them.
"""
