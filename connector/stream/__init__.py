"""Stream reads.

reader      Spark's planning calls, translated into those of a consumer
consumer    the protocols of consumers
factory     which consumer a query needs
fan_out     one query over several queues or brokers: the order of a trigger's steps
queues      the consumer of queues at one broker
lease       the planner's side of one lease
credit      how much a trigger may still take, of all queues and brokers together
replay      a stream of archived messages, which acquires nothing
"""
