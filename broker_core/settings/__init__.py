"""Settings of a broker.

- keys: every key with its limits and reason; the file and the command line. kinds: allowed values.
- declarations: queues and other nodes that a start declares.
- listeners: addresses for AMQP.
- strict_json: JSON without duplicate names, and tables without unknown keys.
"""
