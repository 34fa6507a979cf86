"""Requests by name, whichever plane they come through: one table of them, who may make each, and what carries them out.

callers, permissions      who asks, and which right each request needs
namespaces                names of leases, stages and writes of each user
requests                  what a request may say: one table of fields
descriptions              what each action does and each field means, in a line
actions                   actions; by subject also in `leasing`, `moves`, `exchanges`
browsing, browses         what a look shows, its division into tasks, and its messages
shown                     messages for people
hinting                   names in a selector that may be meant as fields, in answers
operating                 connections, users, the broker itself
recorded                  messages in the archive's table
malformed                 messages that no reader can decode, set aside
"""
