"""The Flight plane: docs/flight-protocol.md, translated into commands. No rule of a queue lives here."""

from broker_core.flight_plane.server import FlightPlane

__all__ = ["FlightPlane"]
