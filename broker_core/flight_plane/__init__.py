"""The Flight plane: docs/protocols/flight.md, translated into commands. No rule of a queue lives here.

From the socket up:

listener               who is let in, time-outs, threads
wires                  plain sockets and TLS
connection, frames     HTTP/2
calls, budget          one gRPC call; memory for what comes
statuses               how a call ends
protobuf, arrow_ipc    Flight's messages, measured before they are decoded
server                 Flight's methods
callers, permissions   who asks, and which right each request needs
namespaces             names of leases, stages and writes of each user
requests               what a request may say: one table of fields
actions                actions; by subject also in `leasing`, `moves`, `exchanges`
receiver, outcomes     puts: messages, and outcomes of a lease's messages
streams, browsing      gets: tickets; what a look shows
recorded               messages in the archive's table
malformed              messages that no reader can decode, set aside
"""

from .server import FlightPlane

__all__ = ["FlightPlane"]
