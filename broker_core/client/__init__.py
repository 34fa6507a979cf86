"""The clients. Spark's executors use `flight` and `amqp`, which need only pyarrow and the standard library.

app            the client for applications: reconnects, sessions, transactions, workers
amqp           a small client that moves lists of messages
flight         the client of the Flight plane: JSON and record batches
discovery      from a broker's AMQP address to its Flight endpoint
timeouts       an end for every wait at a silent broker
credentials    user, certificate and trusted authorities of a client
shared_access  connection strings and tokens of Azure Service Bus
"""
