"""Settings of a broker.

- keys: every key with its unit, limits and reason; the file and the command line. kinds: the form and the allowed values.
- declarations: queues, exchanges, bindings and policies that a start declares.
- listeners: addresses for AMQP with their TLS and SASL mechanisms.
- strict_json: JSON without duplicate names.
"""
