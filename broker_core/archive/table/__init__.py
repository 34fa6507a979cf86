"""Layout of an archive table.

layout    columns, partition, files, folders
features  supported features of Delta tables
"""
