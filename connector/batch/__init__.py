"""Batch reads, which acquire no messages.

- reader: ranges of queues and archives, planned and read, and narrowed by filters of the query
"""
