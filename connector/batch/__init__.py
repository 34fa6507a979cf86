"""Batch reads, which acquire no messages.

- reader: ranges of queues and archives, planned and read
- filters: the ranges, narrowed by filters of the query
"""
