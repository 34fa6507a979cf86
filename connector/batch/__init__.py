"""Batch reads, which acquire no messages.

- reader: ranges of queues and archives, planned and read
- pushdown: the same, narrowed by filters of the query
"""
