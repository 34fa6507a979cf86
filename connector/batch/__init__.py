"""Batch reads, which acquire nothing.

reader      ranges of queues and archives, planned and read; filters that Spark pushes down
"""
