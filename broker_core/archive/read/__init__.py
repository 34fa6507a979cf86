"""Reading an archive table, in the broker and in Spark's tasks.

bounds  the wanted rows, as conditions on columns
files   the files of a table version that may have these rows. Needs deltalake
scan    the rows of one file
ids     the rows with one of some ids. Needs xxhash
queues  the queues that have a table, also deleted ones. Needs deltalake
"""
