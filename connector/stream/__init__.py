"""Stream reads.

- reader: Spark's planning calls, translated into those of the consumer that a query needs
- protocols: what the planner of a stream needs of a consumer, and a query over several brokers of each
- queues, lease: the consumer of queues at one broker; the planner's side of one lease
- fan_out: one query over several queues or brokers, the order of a trigger's steps
- credit: the limits of a trigger, for all queues and brokers together
- replay: a stream of archived messages without a lease
"""
