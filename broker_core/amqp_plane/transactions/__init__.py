"""Transactions, as part 4 of AMQP 1.0 has them.

coordinator   control links: declare and discharge
registry      the transactions of a connection, by the ids that its links name
posting       messages that are sent in one
retiring      outcomes in one
acquisition   messages that a link acquires in one
"""
