"""The Flight plane: docs/protocols/flight.md, translated into commands. No rule of a queue lives here.

From the socket up:
- `listener` (who is let in, time-outs, threads), `wires` (plain, TLS), `connection` and `frames` (HTTP/2)
- `calls` and `budget` (one gRPC call, memory for what comes), `statuses` (how a call ends)
- `protobuf` and `arrow_ipc` (Flight's messages, measured before they are decoded)
- `server` (the methods), `callers` and `permissions` (who may), `requests` (what may be said)
- `actions`, by subject also `leasing`, `moves`, `exchanges`; `receiver` and `outcomes` (puts); `streams` (gets)
"""

from penstock.broker_core.flight_plane.server import FlightPlane

__all__ = ["FlightPlane"]
