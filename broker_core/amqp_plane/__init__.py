"""The AMQP plane: AMQP 1.0 on sockets, translated into commands. No rule of a queue lives here.

Octets come up through a connection's layers, the peer turns frames into link events, and links queue their requests with the
loop. A pass of the loop carries them out under one hold of the broker's lock. Effects (dispositions, transfers, answers) wait
in one line by log position until the journal says durable. The loop itself writes a small pass while the disk is quick.

Kept here, and gone with the broker: a link's credit and what it has under way; what a detached link has unsettled, and until
when; who is told of work next. The engine holds the messages under an odd holder, and recovery gives them back.

connections/    a socket, TLS, WebSocket, the login, back pressure; one connection's events into links
loop/           the event loop: what all sockets brought as few commands, one journal write, effects that wait for the disk
links/          an attach, its link, what goes over it, and what lives on when it is detached
nodes/          what an attach names or makes: addresses, filters, dynamic nodes, subscriptions
transactions/   control links, and what is done in a transaction
ports           what a link may ask of the loop, of its connection and of the plane
"""

from .loop.server import AmqpPlane

__all__ = ["AmqpPlane"]
