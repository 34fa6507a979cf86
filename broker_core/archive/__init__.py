"""The archive: a Delta table for each queue with its settled messages, each once.

table     the layout of a table, and the supported features of Delta
read      rows of a table
write     rows into a table
recorder  the thread of the broker that begins recordings, and the process that writes

Executors read the files of a table themselves, so they receive `table` and `read`. Both need only pyarrow.
"""
