"""Reading an archive table, in the broker and in Spark's tasks.

bounds  the rows that a read wants, as conditions on columns
files   the files of a table version that may have these rows, divided into tasks. Needs deltalake
scan    the rows of one file as record batches
"""
