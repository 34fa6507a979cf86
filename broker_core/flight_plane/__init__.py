"""The Flight plane: docs/protocols/flight.md, translated into commands. From the socket up:

listener, transports   admission, timeouts, threads; plain sockets and TLS
connection, frames     HTTP/2
calls, budget          one gRPC call; memory for incoming messages
statuses               the end of a call
protobuf, arrow_ipc    Flight's messages, measured before they are decoded
arrow_types            the types of Arrow's format
server                 the methods of Flight
receiver, outcomes     puts
streams                gets
"""

from .server import FlightPlane as FlightPlane
