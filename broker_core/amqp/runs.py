"""Runs of transfers and of dispositions (see `fastpath`), handled by a session in blocks, or one by one in special cases.

A block never extends past a renewal of the session's window, so that the flows which renew it stand where the plain way puts
them.
"""

from __future__ import annotations

from . import dispositions, events, serial, states
from .deliveries import Block
from .fastpath import Dispositions, Run
from .frames import Frame
from .receivers import Receiver
from .sessions import Session


def take_run(session: Session, run: Run) -> list[events.Event]:
    """Return the events of a run: as for its frames, except that more deliveries share one event."""
    found: list[events.Event] = []
    begin, count = 0, len(run.ids)
    while begin < count:
        states.advance(states.SESSION, session.state, "r:frame")
        if session.discards:
            session.connection.coordinated.name(run.transfer.state, count - begin)
            return found
        link = session.remote_links.get(run.transfer.handle)
        end = begin + min(count - begin, session.free_block)
        deliveries = link.on_run(run, begin, end) if end > begin and isinstance(link, Receiver) else None
        if link is None or deliveries is None:
            return found + _one_by_one(session, run, begin)
        session.connection.coordinated.name(run.transfer.state, end - begin)
        session.count_received(end - begin)
        if isinstance(deliveries, Block):
            found.append(events.Arrived(link, deliveries))
        else:
            found.append(events.Delivered(link, deliveries))
        session.renew_window()
        begin = end
    return found


def take_dispositions(session: Session, run: Dispositions) -> list[events.Event]:
    """Return the one event of a run of dispositions."""
    states.advance(states.SESSION, session.state, "r:frame")
    if session.discards:
        session.connection.coordinated.name(run.disposition.state, len(run.ranges))
        return []
    exhausted = session.outgoing.exhausted or session.incoming.exhausted
    if exhausted or any(serial.difference(last, first) < 0 for first, last in run.ranges):
        return _plainly(session, run.frames())
    return [dispositions.apply(session, run.disposition, run.ranges)]


def _one_by_one(session: Session, run: Run, begin: int) -> list[events.Event]:
    rest = Run(run.channel, run.transfer, run.ids[begin:], run.tags[begin:], run.payloads[begin:])
    return _plainly(session, rest.frames())


def _plainly(session: Session, frames: list[Frame]) -> list[events.Event]:
    found: list[events.Event] = []
    for frame in frames:
        assert frame.performative is not None
        found += session.connection.guarded(session, frame.performative, frame.payload)
    return found
