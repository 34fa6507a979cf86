"""Several brokers behind one query and one write: `url=amqp://a,amqp://b`.

consumer          the protocol of consumers, as the stream reader calls them
credit            what a trigger may still take, of all queues and brokers together
several, member   a query's consumer over several brokers; one of them, with its thread
spread            a write: which rows go to which broker, and their stages there
publishing        the publish of a write: once at each broker, and its repetition
decision          what the first of these publishes keeps: the attempts at each broker
replaying         a replay over several brokers
identities        brokers that are the same, or of different versions
offset            what the checkpoint holds of several
"""
