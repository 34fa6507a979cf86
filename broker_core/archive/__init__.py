"""The archive: a Delta table for each queue with the settled messages of that queue, each message once.

table     the layout of a table: columns, partition, compression, folders, and the supported features of Delta
read      rows of a table: the files that have them, and the rows of one file
write     rows into a table: files, commits, compaction, retention and vacuum
recorder  the thread of the broker that begins recordings, and the process that writes

Executors read the files of a table themselves, so they receive `table` and `read`. Both use only pyarrow, and deltalake if it is
installed. `write` and `recorder` belong to the broker.
"""
