"""`penstock definitions`: export, and import from Penstock, RabbitMQ and ActiveMQ Artemis.

- `command`: the commands, and the report
- `steps`: the requests of an import, and their results
- `own`: Penstock's file
- `rabbitmq`, `rabbitmq_queues`, `rabbitmq_policies`, `rabbitmq_users`: RabbitMQ's definitions
- `queues`: queues of both, and cycles of their dead letters
- `artemis`: Artemis's broker.xml
- `regular_expressions`: RabbitMQ's patterns of names
"""
