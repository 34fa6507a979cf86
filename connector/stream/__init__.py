"""Stream reads.

- reader: Spark's planning calls, translated into those of the consumer that a query needs
- protocols: the consumer of a stream, and the consumer of one broker in a query over several
- consumer, lease: the consumer of queues at one broker; the planner's side of one lease
- fan_out: one query over several queues or brokers, the order of a trigger's steps
- credit: the limits of a trigger, for all queues and brokers together
- start_tracking: the same calls from Spark 4.0 and 4.1, which do not name the offset at which a trigger starts
- replay: a stream of archived messages without a lease
"""
