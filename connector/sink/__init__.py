"""Writes to Penstock.

writer      stage the rows of each task, then publish them once
settlement  outcomes of single messages
"""
