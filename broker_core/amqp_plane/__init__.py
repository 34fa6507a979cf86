"""The AMQP plane: AMQP 1.0 on sockets, translated into commands. No rule of a queue lives here.

server                        the loop, its listeners, limits and clock
transport, layers             a socket, TLS, WebSocket, the login, back pressure
peer, opening, revocation     one connection: events into links; who is let in, and who may stay
endpoint, incoming, outgoing  its links; browsing: one that takes nothing; sayable: messages as they leave
attaching, termini            an attach from its frame to its answer; what it opens, and what ends with its link
addresses, filters, wishes    what an attach names, and asks for
nodes, subscriptions          what an attach makes: dynamic nodes, and for each subscription a queue of its own
containers                    whose links they are
detached, expiry              links that are detached and live on, and until when
resuming, resumptions         how they are attached again, and what is then sent again
turn, outcomes, writing       what one turn of the loop brought: few commands, one journal write, effects that wait for the disk
acquiring, selecting, locks   who acquires next; selectors that are not evaluated yet; deliveries that were held too long
exchanging, at_once           messages for an exchange, for now or never
blocking, lines               for a queue that lets its senders wait: by their credit, or with their outcome
coordinator, transactions     control links, and what is done in a transaction (posting, retiring, acquisition)
endings, tags, conditions     AMQP's outcomes as the engine's, delivery tags, our errors as AMQP's
"""

from broker_core.amqp_plane.server import AmqpPlane

__all__ = ["AmqpPlane"]
