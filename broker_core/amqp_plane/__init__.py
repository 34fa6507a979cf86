"""The AMQP plane: AMQP 1.0 on sockets, translated into commands. No rule of a queue lives here.

connections/    a socket, TLS, WebSocket, the login, back pressure; one connection's events into links
loop/           the event loop: what all sockets brought as few commands, one journal write, effects that wait for the disk
links/          an attach, its link, what goes over it, and what lives on when it is detached
nodes/          what an attach names or makes: addresses, filters, dynamic nodes, subscriptions
transactions/   control links, and what is done in a transaction
ports           what a link may ask of the loop, of its connection and of the plane
"""

from penstock.broker_core.amqp_plane.loop.server import AmqpPlane

__all__ = ["AmqpPlane"]
