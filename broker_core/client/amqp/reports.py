"""Reports of the deliveries that the application has: AMQP's delivery state *received*, sent before the application gets them.

If the link is then lost, the broker counts an attempt for these deliveries and not for prefetched ones. One report covers all
deliveries before it. Reports are sent only to a broker that grants the link property: other brokers use this state for resumed
links.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ...amqp import Receiver
from ...amqp.deliveries import Delivery
from ...amqp.performatives import Received
from ...messages.annotations import REPORTS
from .links import LinkConnection

_RECEIVED = Received(section_number=0, section_offset=0)


def with_reports(connection: LinkConnection, properties: Mapping[str, Any] | None) -> Mapping[str, Any] | None:
    return {**(properties or {}), REPORTS: True} if connection.is_penstock else properties


def wants_reports(link: Receiver) -> bool:
    attach = link.remote_attach
    return attach is not None and (attach.properties or {}).get(REPORTS) is True


def report(delivery: Delivery) -> None:
    """Report that the application is about to have a delivery. The caller flushes. Raises LocalProtocolError."""
    delivery.link.session.dispose([delivery], _RECEIVED, settled=False)
