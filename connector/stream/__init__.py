"""Stream reads.

- reader, start_tracking: Spark's planning calls, for the consumer of a query; those of Spark 4.0 and 4.1
- protocols: the calls of consumers
- consumer, lease: the consumer of queues at one broker; the planner's side of one lease
- fan_out, credit: the order of a trigger's steps; its limits
- replay: a stream of archived messages without a lease
"""
