"""Event messages: what happens at the broker, as messages of a queue.

publisher   adds them to the queue `$events` if it exists
"""
