"""The clients. Spark's executors use `flight` and `amqp`, which need only pyarrow and the standard library.

app                         for applications
amqp                        a small client that moves lists of messages
flight                      for the Flight plane
discovery                   from a broker's AMQP address to its Flight endpoint
timeouts                    limits of waits
durations                   seconds or `timedelta`
public                      the names that `dir` shows
credentials, shared_access  users, certificates, keys of Azure Service Bus
"""
