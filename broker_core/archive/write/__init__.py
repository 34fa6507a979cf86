"""Writing an archive table.

queue_table  a table: creation, checks, commits, retention, vacuum
rows         the rows of a recording, from the journal's segments
parquet      Parquet files
compaction   small files into larger ones
merging      rows of several files in one order
table_files  the files of one table, in a local folder or an object store
"""
