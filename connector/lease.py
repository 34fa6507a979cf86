"""The planner's side of a lease: one planner process, one epoch.

Whoever first names a lease takes it up under a new epoch; what an older one asks is then refused. So a planner keeps the epoch
that its first call brought, and a daemon thread renews while it lives (one that is no daemon would keep a dead driver's planner
alive).

Every call is idempotent, so one that found no broker is sent again for a while: a broker that restarts ends no query.
"""

from __future__ import annotations

import secrets
import threading
from contextlib import suppress
from typing import Any

from broker_core.errors import PeerError, PenstockError, WrongOffset
from connector.access import Access
from connector.offset import INITIAL, Offset
from connector.options import RANDOM_LEASE, Options
from connector.patience import RECONNECT_S, Patience

RENEW_S = 10.0  # the broker gives an unread batch back after a minute of silence
LONG_POLL_MS = 100  # all sources of a query are asked in one thread: a longer wait would hold up the others


class Lease:
    """A lease as one planner holds it. Nothing is sent before the first call; calls come from one thread.

    Raises PenstockError with the broker's own text, and WrongOffset where the checkpoint and the options contradict each other.
    """

    def __init__(self, options: Options) -> None:
        self._options = options
        self._client = options.access.client()
        self._known: Offset | None = None  # names broker, lease and run; its batch has no meaning here
        self._epoch: int | None = None
        self._data_dir = ""
        self._broker = ""
        self._stopped = threading.Event()

    @property
    def data_dir(self) -> str:
        """Where the broker keeps its segments, for a task on the same host."""
        return self._data_dir

    @property
    def access(self) -> Access:
        """What a task needs to reach the broker. Its token is a fresh one, as of this planner's last call."""
        return self._options.access.found_by(self._client)

    @property
    def epoch(self) -> int:
        if self._epoch is None:
            raise WrongOffset("this planner holds no lease yet")
        return self._epoch

    def next_sequence(self) -> int:
        """The queue's tail: everything before it is there now."""
        return int(self._call("queue.stat", queue=self._options["queue"])["nextSequence"])

    def advance(self, start: Offset, *, until: int | None, wait: bool) -> Offset:
        """Settle up to `start`; then the unfinished next batch, or a new one within the credit, or `start` when there is none.

        `until`, the queue's tail of an `availableNow` run, is the first sequence number not to take; such a run does not take
        again what it gave back unread. Without `wait` the answer comes at once.
        """
        known = self._enter(start)
        answer: dict[str, Any] = {"more": True}
        while answer.get("more"):  # a selector over a queue that nobody has looked through yet: the broker says so now and then
            answer = self._call(
                "lease.advance",
                **self._names(known),
                finished=start.batch,
                # A new lease has no epoch until it has taken something; until then the query begins again with each call.
                fresh=start.initial and self._epoch is None,
                messages=self._options["maxMessagesPerTrigger"],
                bytes=self._options["maxBytesPerTrigger"],
                until=until,
                exclude=until is not None,
                waitMs=LONG_POLL_MS if wait and until is None else 0,
                failOnDataLoss=self._options["failOnDataLoss"],
                leaseTimeout=self._options["leaseTimeout"],
                selector=self._options["selector"],
            )
            self._took_up(answer)
        # Also after a rollback that `failOnDataLoss=false` lets pass: the broker's number is the one that goes on.
        return start if answer["batch"] == start.batch else known.at(answer["batch"])

    def plan(self, start: Offset, end: Offset) -> list[dict[str, int]]:
        """The tasks of the batches after `start` up to `end`, as fields of `read.Part`."""
        known = self._enter(end)
        answer = self._call(
            "lease.plan",
            **self._names(known),
            after=start.batch,
            batch=end.batch,
            minPartitions=self._options["minPartitions"],
            maxMessages=self._options["maxMessagesPerPartition"],
            failOnDataLoss=self._options["failOnDataLoss"],
        )
        self._took_up(answer)
        names = ("batch", "first", "last", "count", "bucket", "buckets")
        parts = [dict(zip(names, part, strict=False)) for part in answer["parts"]]
        return [{name: value for name, value in part.items() if name != "count"} for part in parts]

    def settle(self, end: Offset) -> None:
        """Spark has finished everything up to `end`. What is settled already stays so."""
        known = self._enter(end)
        loss = self._options["failOnDataLoss"]
        self._took_up(self._call("lease.settle", **self._names(known), finished=end.batch, failOnDataLoss=loss))

    def close(self) -> None:
        self._stopped.set()
        self._client.close()

    # --- Who the lease is ----------------------------------------------------------------------------------------------

    def _enter(self, offset: Offset) -> Offset:
        """The lease of this planner: the offset's, or a new one when there is none. Contradictions are refused."""
        if not self._broker:
            # The one call besides: which broker is it? Not sent again when nobody answers: the url may be wrong.
            hello = self._client.call("hello")
            self._broker, self._data_dir = hello["broker"], hello["dataDir"]
        if self._known is None:
            self._known = self._begin() if offset.initial else offset
            self._check(self._known)
        if not offset.initial and offset.at(0) != self._known.at(0):
            raise WrongOffset(
                f"the offset names lease {offset.lease!r}, run {offset.run}, but this query reads lease {self._known.lease!r},"
                f" run {self._known.run}: the checkpoint was changed while the query ran; start the query again"
            )
        return self._known

    def _begin(self) -> Offset:
        name = self._options["consumer"] or f"q-{secrets.token_hex(16)}"
        return INITIAL._replace(broker=self._broker, lease=name, run=secrets.token_hex(8))

    def _check(self, known: Offset) -> None:
        if known.broker != self._broker:
            raise WrongOffset(
                f"the checkpoint belongs to broker {known.broker}, but the one at {self._options['url']} is {self._broker}:"
                " point the option url at the broker (or the data directory) the query began with, or start with a new checkpoint"
            )
        consumer = self._options["consumer"]
        if consumer is not None and consumer != known.lease:
            raise WrongOffset(
                f"the checkpoint belongs to lease {known.lease!r}, but the option consumer says {consumer!r}:"
                " put the option back as it was, or start with a new checkpoint"
            )
        if consumer is None and not RANDOM_LEASE.fullmatch(known.lease):
            raise WrongOffset(
                f"the checkpoint belongs to consumer {known.lease!r}, but the option consumer is not set:"
                " put it back as it was, or start with a new checkpoint"
            )

    def _names(self, known: Offset) -> dict[str, Any]:
        return {"queue": self._options["queue"], "lease": known.lease, "run": known.run, "epoch": self._epoch}

    def _took_up(self, answer: dict[str, Any]) -> None:
        if self._epoch is None and answer["epoch"] is not None:
            self._epoch = answer["epoch"]
            threading.Thread(target=self._renew, name="penstock-renew", daemon=True).start()

    # --- Talking -------------------------------------------------------------------------------------------------------

    def _call(self, action: str, **fields: Any) -> dict[str, Any]:
        patience = Patience(RECONNECT_S if self._broker else 0.0)
        while True:
            try:
                return self._client.call(action, **fields)
            except PeerError as error:
                patience.wait(error)

    def _renew(self) -> None:
        while not self._stopped.wait(RENEW_S):
            # A broker that is down counts no time, and is told again when it is back; a lease that was taken by another reader
            # or deleted is reported to the user by the next planning call.
            with suppress(PenstockError):
                self._client.call("lease.renew", lease=self._known.lease if self._known else "", epoch=self._epoch)
