"""AMQP 1.0 on sockets, translated into commands. The plane contains no rules of queues.

The layers of a socket pass octets to a dispatcher, which turns frames into calls of links. Links hand requests to the commit
loop, which uses only the two base classes in `loop.parties`. It carries the requests out under the broker's lock, and sends
the answers when they are durable.

Credit, deliveries under way, detached links and the order in which links look for messages end with the broker.

- `plane`: listeners, the event loop's thread, the clock, requests of operators.
- `connections/`: accepted sockets, logins, limits of a connection.
- `links/`: attaches, attached and detached links, messages, outcomes.
- `transactions/`: control links, and work in a transaction.
- `nodes/`: addresses, filters, dynamic nodes, subscriptions.
- `service_bus/`: the dialect of Azure Service Bus.
- `context`: objects that all connections and links share.
- `loop/`: the commit loop.
- `layers/`: TLS, WebSocket and the PROXY protocol.
- `queue_reads`: reads of queues within a turn.
- `conditions`: our errors as AMQP's.
"""

from .plane import AmqpPlane

__all__ = ["AmqpPlane"]
