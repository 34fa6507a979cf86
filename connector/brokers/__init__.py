"""Several brokers behind one query and one write: `url=amqp://a,amqp://b`.

- consumer, member: a query's consumer over several brokers; one of them, with its thread
- spread: the broker of each row of a write, and its stages
- publishing: the publish of a write, once at each broker
- decision: the text with the attempts at each broker
- replays: a replay over several brokers
"""
