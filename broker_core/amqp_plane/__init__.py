"""The AMQP plane: AMQP 1.0 on sockets, translated into commands. No rule of a queue lives here.

server                        the loop, its listeners, limits and clock
transport, layers             a socket, TLS, WebSocket, the login, back pressure
peer, opening, revocation     one connection: events into links; who is let in, and who may stay
endpoint, incoming, outgoing  its links
turn, outcomes                what one turn of the loop brought: few commands, one journal write, effects that wait for the disk
addresses, containers         what a terminus names, whose links they are
conditions                    our errors as AMQP's
"""

from broker_core.amqp_plane.server import AmqpPlane

__all__ = ["AmqpPlane"]
