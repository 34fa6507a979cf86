"""The Flight plane: docs/protocols/flight.md, translated into commands. No rule of a queue lives here.

From the socket up:

listener               who is let in, time-outs, threads
transports             plain sockets and TLS
connection, frames     HTTP/2
calls, budget          one gRPC call; memory for what comes
statuses               how a call ends
protobuf, arrow_ipc    Flight's messages, measured before they are decoded
arrow_types            the types of Arrow's format, and which of them messages have
server                 Flight's methods
receiver, outcomes     puts: messages, and outcomes of a lease's messages
streams                gets: tickets

Who asks, and what can be asked, stands in `actions/`.
"""

from .server import FlightPlane

__all__ = ["FlightPlane"]
