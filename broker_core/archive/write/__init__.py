"""Writing an archive table: settled messages become rows, each message once.

commits     `QueueTable`: opens or creates a table, and commits recordings, compactions, retention and vacuum
rows        the rows of a recording, from the journal's segments
parquet     Parquet files of rows
compaction  small files into larger ones
merging     rows of several files in one order
table_files the files of one table, in a local folder or an object store
"""
