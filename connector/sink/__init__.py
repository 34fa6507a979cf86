"""Writes to Penstock.

writer      stage the rows of each task, then publish them once
routing     batches of a good size, and by the queues that rows name
settlement  outcomes of single messages
"""
