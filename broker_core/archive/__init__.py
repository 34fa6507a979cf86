"""The archive: a Delta table for each queue with the settled messages of that queue, each message once.

table     what a table looks like: columns, partition, compression, folders, and the features of Delta that we support
read      rows of a table: which files have them, and how a task reads a file
write     rows into a table: files, commits, compaction, retention and vacuum
recorder  the thread of the broker that decides what is recorded when, and the process that writes

Executors read the files of a table themselves, so they receive `table` and `read`. Both use only pyarrow, and deltalake if it is
installed. `write` and `recorder` belong to the broker.
"""
