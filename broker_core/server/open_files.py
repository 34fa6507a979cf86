"""Room for sockets: many systems let a process open 1,024 files unless it asks for more."""

from __future__ import annotations

import logging
import resource

#: Files beside the connections: the journal's segments, listeners, libraries.
OTHERS = 512

log = logging.getLogger("penstock")


def make_room(connections: int) -> int:
    """Raises the soft limit of open files as far as `connections` need it and the hard limit lets it. How many connections there
    is room for then; when that is fewer, the log says so.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = connections + OTHERS
    if soft != resource.RLIM_INFINITY and soft < wanted:
        raised = wanted if hard == resource.RLIM_INFINITY else min(wanted, hard)
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (raised, hard))
            soft = raised
        except (ValueError, OSError) as error:  # some systems have a lower limit than the hard one says
            log.debug("open files: %s", error)
    room = connections if soft == resource.RLIM_INFINITY else max(0, min(connections, soft - OTHERS))
    if room < connections:
        log.warning(
            "only %d files may be open, so there is room for about %d of %d connections: raise the hard limit (ulimit -Hn,"
            " or LimitNOFILE of the service), or lower amqp_max_connections and flight_max_connections",
            soft,
            room,
            connections,
        )
    return room
