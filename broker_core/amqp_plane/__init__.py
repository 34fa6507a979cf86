"""The AMQP plane: AMQP 1.0 on sockets, translated into commands. It contains no rules of queues.

Octets come up through the layers of a socket. A dispatcher turns frames into calls of links, and links hand requests to the
commit loop. The loop carries them out while it holds the broker's lock, and sends the answers when they are durable. The loop
does not know the links, only two base classes in `loop.parties`.

The plane's own state ends with the broker: credit, deliveries under way, detached links, and the order in which links look for
messages.

- `plane`: listeners, the event loop's thread, the clock, and the requests of operators.
- `connections/`: accepted sockets, logins, events of a connection, its limits.
- `links/`: an attach, its link, its messages and outcomes, and links that live on detached.
- `transactions/`: control links, and work in a transaction.
- `nodes/`: nodes that an attach names or makes: addresses, filters, dynamic nodes, subscriptions.
- `service_bus/`: the dialect of Azure Service Bus, for listeners that have it.
- `context`: settings, clock and commit loop, which all connections and links share.
- `loop/`: the commit loop.
- `layers/`: TLS, WebSocket and the PROXY protocol between a socket and AMQP.
- `queue_reads`: reads of queues within a turn.
- `conditions`: our errors as AMQP's.
"""

from .plane import AmqpPlane

__all__ = ["AmqpPlane"]
