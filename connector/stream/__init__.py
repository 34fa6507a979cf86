"""Stream reads.

reader      Spark's planning calls, translated into those of a consumer
consumer    the protocols of consumers
factory     which consumer a query needs
queues      several queues behind one query
lease       the planner's side of one lease
credit      how much a trigger may still take, of all queues and brokers together
replay      a stream of archived messages, which acquires nothing
"""
