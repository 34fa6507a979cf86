"""Settings of a broker: what may be configured, and how it is written.

keys           every key with its unit, limits and reason; the file, the environment, the command line
live           keys that may change while the broker runs
kinds          how a key's value is written, and which values are allowed
declarations   queues, exchanges, bindings and policies that a start declares
listeners      where AMQP is listened for, and what each listener offers
strict_json    JSON in which a name stands once in an object
"""
