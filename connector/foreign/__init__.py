"""Any AMQP 1.0 broker: what is needed beyond the ways of Penstock's own.

sink        rows to a broker's queues, each confirmed
naming      message ids that a retried task gives again
"""
