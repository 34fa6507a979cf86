"""Between encoded AMQP messages and stored columns, both ways, without a Python object per field."""
