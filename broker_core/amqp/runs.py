"""Runs of transfers (see `fastpath`) into a session: in blocks where nothing is special, else one by one the plain way.

A block never reaches past a renewal of the session's window, so that the flows which renew it stand where the plain way puts
them.
"""

from __future__ import annotations

from . import events, states
from .fastpath import Run
from .performatives import Transfer
from .receivers import Receiver
from .sessions import Session
from .states import SessionState


def take_run(session: Session, run: Run) -> list[events.Event]:
    """The events of a run: the same as of its frames, but for how many deliveries share one."""
    found: list[events.Event] = []
    begin, count = 0, len(run.ids)
    while begin < count:
        states.advance(states.SESSION, session.state, "r:frame")
        if session.state is SessionState.DISCARDING:
            return found
        link = session.remote_links.get(run.transfer.handle)
        end = begin + min(count - begin, session.free_block)
        deliveries = link.on_run(run, begin, end) if end > begin and isinstance(link, Receiver) else None
        if link is None or deliveries is None:
            return found + _one_by_one(session, run, begin)
        session.count_received(end - begin)
        found.append(events.Delivered(link, deliveries))
        session.renew_window()
        begin = end
    return found


def _one_by_one(session: Session, run: Run, begin: int) -> list[events.Event]:
    rest = Run(run.channel, run.transfer, run.ids[begin:], run.tags[begin:], run.payloads[begin:])
    found: list[events.Event] = []
    for frame in rest.frames():
        assert isinstance(frame.performative, Transfer)
        found += session.connection.guarded(session, frame.performative, frame.payload)
    return found
