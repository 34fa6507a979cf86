"""Transactions (part 4 of AMQP 1.0).

- `coordinator`: control links, with declare and discharge.
- `registry`: the transactions of a connection, by id.
- `outcomes`: outcomes in a transaction.
- `acquisition`: messages that a link acquires in a transaction.
"""
