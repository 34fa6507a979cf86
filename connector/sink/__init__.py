"""Writes to Penstock.

- writer: stages of each task's rows, then one publish
- routing: batches of a good size, by queue
- settlement: outcomes of single messages
"""
