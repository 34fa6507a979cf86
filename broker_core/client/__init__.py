"""The client of the Flight plane. Needs nothing but pyarrow, since Spark's executors use it.

flight        `Client`: JSON out, JSON in, record batches both ways, Penstock's errors raised
putting       one put: batches out, acknowledgements in, and what is kept until the first
credentials   how a client logs in and whom it trusts
shared_access connection strings and tokens of Azure Service Bus
discovery     from a broker's AMQP address to its Flight endpoint
redriving     dead letters that somebody chose, back to where they came from
timeouts      an end for every wait at a broker that says nothing more
"""
