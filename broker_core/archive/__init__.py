"""The archive: for each queue a Delta table of the messages that were settled, outside of the broker's data directory perhaps.

table    columns of the table, folders of tables, and the way from a table's rows to the columns of a read
bounds   the rows of a table that somebody wants
files    files of a version of the table that may have such rows, divided into tasks; needs deltalake
features features of Delta tables that a read honours, and those that a commit honours
scan     rows of a file, as record batches

Pure pyarrow but for `files` and `features`, since Spark's executors read the table's files by themselves: this folder is sent to
them. Who writes the table, and when, is no matter of this folder.
"""
