"""Writes to Penstock.

- writer: stages of the rows of each task, then one publish
- routing: batches of a good size, and by the queues that rows name
- settlement: outcomes of single messages
"""
