"""Layout of an archive table, for its writers and its readers.

layout    columns, partition, folders and files
features  features of Delta tables that a read or a commit supports
"""
