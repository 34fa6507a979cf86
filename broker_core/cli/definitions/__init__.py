"""`penstock definitions`: export, and import from Penstock and RabbitMQ.

- `command`: the commands, and the report
- `steps`: the requests of an import, and their results
- `own`: Penstock's file
- `rabbitmq`, `rabbitmq_queues`, `rabbitmq_policies`, `rabbitmq_users`: RabbitMQ's definitions
- `regular_expressions`: RabbitMQ's patterns of names, as patterns of Penstock
"""
