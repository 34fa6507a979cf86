"""Batch reads, which acquire nothing.

reader      ranges of queues and archives, planned and read
pushdown    the same, narrowed by filters of the query
"""
