"""The Flight plane: docs/protocols/flight.md, translated into commands. It decides no rule of a queue.

From the socket up:

listener               admission, timeouts, threads
transports             plain sockets and TLS
connection, frames     HTTP/2
calls, budget          one gRPC call; memory for incoming messages
statuses               the end of a call
protobuf, arrow_ipc    Flight's messages, measured before they are decoded
arrow_types            the types of Arrow's format, and the types that messages may have
server                 the methods of Flight
receiver, outcomes     puts: messages, and outcomes of a lease's messages
streams                gets: tickets

`actions/` declares the requests and authenticates callers.
"""

from .server import FlightPlane

__all__ = ["FlightPlane"]
