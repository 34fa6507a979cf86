"""Reads within a Spark task.

- partition: the values that the planner passes to a task
- reading: the record batches of one partition
- mapping: the broker's segment files, mapped
- archive: rows of the archive's table
- connections: broker connections that tasks share
- context: query, batch and attempt of a task
- batching: record batches of the size that Spark wants
- declared: rows as the user's schema declares them
"""
