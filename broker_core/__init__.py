"""Penstock's broker: durable queues with full queue semantics, reached over Arrow Flight and AMQP 1.0.

From top to bottom; a room imports only from below it (the rule is in pyproject.toml, and `./dev lint` holds it):

cli                       the command line
server                    a broker with its planes, in this process or in a child
amqp_plane, flight_plane,
http_plane                three ways to talk to it; planes only translate
actions                   what can be asked of a broker by name, and who may ask it
service                   one state, one journal, one lock, one clock
reading                   messages of a queue as record batches
security                  users, permissions, TLS
settings                  what may be configured
client                    the clients: for applications, for lists of messages over AMQP, for Flight
selectors                 JMS selectors: parsed, and evaluated on columns
archive                   settled messages in Delta tables: layout, reads, writes and the recorder
messages                  a message as columns and as AMQP, and the way between
copy                      a copy of the data directory in an object store; backup, restore, check
engine                    decides and applies; pure
journal                   all that is written to the disk
amqp                      the AMQP 1.0 protocol, sans-I/O
shipped                   modules that travel to Spark's executors as source
logs                      the log: text or JSON lines; nobody waits for who reads it
errors, patterns          errors that say who is at fault; patterns of names
similar                   the name that somebody may have meant
notations                 addresses as other brokers write them
quantities                sizes and times with units, and the limit on delays
children                  processes of a broker: their environment, and what is said to them
wrong_port                what is spoken at a port, for whoever took the wrong one

Importing this package imports nothing else: Spark's executors need only a few of its modules.
"""

__version__ = "0.1.0"
#: Name of the distribution, for hints about what to install: `penstock` on the public index is an unrelated project.
DISTRIBUTION = "penstock-mq"
__all__ = ["DISTRIBUTION", "__version__"]
