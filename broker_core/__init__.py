"""Penstock's broker: durable queues with full queue semantics, reached over Arrow Flight and AMQP 1.0.

From top to bottom. A room imports only rooms below it (pyproject.toml has the rule, and `./dev lint` checks it):

- cli: the command line.
- server: a broker with its planes, in this process or in a child.
- amqp_plane, flight_plane, http_plane: translate three protocols.
- actions: requests by name, and their permissions.
- service: one state, one journal, one lock, one clock.
- reading: messages of a queue as record batches.
- security: users, permissions, TLS.
- settings: settings of a broker.
- client: the clients: for applications, for lists of messages over AMQP, for Flight.
- selectors: JMS selectors: parsed, and evaluated on columns.
- archive: settled messages in Delta tables: layout, reads, writes and the recorder.
- messages: messages as columns and as AMQP, and the conversion.
- copy: a copy of the data directory in an object store; backup, restore, check.
- engine: the rules of queues, without I/O.
- journal: the log, its segments, snapshots and recovery.
- amqp: the AMQP 1.0 protocol, sans-I/O.
- executor_modules: modules that travel to Spark's executors as source.
- logs: the log: lines of text or JSON, written without blocking.
- errors, patterns: errors with the party at fault; patterns of names.
- similar: a guess at a misspelled name.
- notations: addresses in the notation of other brokers.
- quantities: sizes and times with units, and the limit on delays.
- children: child processes of a broker: their environment and messages.
- wrong_port: the protocol at a port, for clients that use a wrong one.

Importing this package imports no other module, because Spark's executors need only a few of them.
"""

__version__ = "0.1.0"
#: Name of the distribution, for installation hints. `penstock` on the public index is an unrelated project.
DISTRIBUTION = "penstock-mq"
__all__ = ["DISTRIBUTION", "__version__"]
