"""Layout of an archive table, for its writers and its readers.

layout    columns, partition, folders and files; the conversion of rows between a table and a read
features  features of Delta tables that a read or a commit supports
"""
