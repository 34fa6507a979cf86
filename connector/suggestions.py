"""Suggestions for an unknown option or column: the name that may be meant, or an alternative.

Names are compared in this order: our names in another notation (`message_id`, `Max-Messages-Per-Trigger`), names of the
connectors for Kafka, Pulsar and Event Hubs, and names similar to ours.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..broker_core import executor_modules
from ..broker_core.similar import nearest, plain

log = logging.getLogger("penstock")

NO_TABLE = (
    "a table of Spark's catalog cannot be a queue, because Spark does not pass its options to a source in Python. A view can, for"
    " SELECT and INSERT INTO: CREATE TEMPORARY VIEW orders (body STRING, subject STRING) USING amqp OPTIONS (url '…', queue '…')"
)
_NO_PATH = (
    "a path has no meaning for the format amqp: name the queue with the option queue, and leave the path out of load(), save()"
    " and start(). Call start() instead of toTable(), which passes the path of a table"
)
#: Options that Spark's own calls set. partitionBy and clusterBy pass none.
_REFUSED = {
    "provider": NO_TABLE,  # by CREATE TABLE, with each of the user's options a second time as `option.NAME`
    "path": _NO_PATH,
    "paths": _NO_PATH,
}


def _by_name(names: dict[str, str]) -> dict[str, str]:
    """Invert a table, whose values are names in the form of `similar.plain`."""
    return {name: suggestion for suggestion, text in names.items() for name in text.split()}


#: Options of other connectors by ours, or by an alternative, which contains a blank.
_OPTIONS = _by_name(
    {
        "url": "kafkabootstrapservers bootstrapservers serviceurl adminurl brokerurl broker host hostname endpoint uri address",
        "connectionString": "eventhubsconnectionstring",
        "queue": "subscribe assign topic topics eventhubsname entitypath queuename queues",
        "name the queues in queue, up to 128 with commas between them": "subscribepattern topicspattern topicpattern",
        "a stream takes the waiting messages; a batch read, and mode=replay, begin at startingSequence or startingTimestamp": (
            "startingoffsets startingoffset startingposition startingpositions eventhubsstartingposition"
        ),
        "endingSequence": "endingoffsets endingoffset eventhubsendingposition endingposition",
        "startingTimestamp": "startingoffsetsbytimestamp startingtime since",
        "endingTimestamp": "endingoffsetsbytimestamp endingtime until",
        "maxMessagesPerTrigger": (
            "maxoffsetspertrigger maxeventspertrigger maxrowspertrigger maxrecordspertrigger maxfilespertrigger"
        ),
        "maxMessagesPerPartition": "maxrecordsperpartition maxrowsperpartition",
        "lease": "kafkagroupid groupid groupidprefix predefinedsubscription subscriptionname eventhubsconsumergroup",
        "userName": "user login",
        "use userName and password": "kafkasasljaasconfig kafkasaslmechanism authparams",
        "use a url that begins with amqps:// or grpc+tls://": "kafkasecurityprotocol usetls ssl tls",
        "caFile": "kafkassltruststorelocation tlstrustcertsfilepath truststore cafilepath",
        "use certFile and keyFile": "kafkasslkeystorelocation keystore",
        "write exchange=EXCHANGE/ROUTING-KEY": "routingkey bindingkey",
        "leave it out, the column properties is always there": "includeheaders",
        "selector": "filter",
    }
)
_COLUMNS = _by_name(
    {
        "body": "value payload data content text",
        "groupId": "key partitionkey messagegroup sessionid",
        "queue": "topic entitypath eventhub topicname",
        "properties": "headers header messageproperties applicationproperties attributes",
        "sequenceNumber": "offset sequence partition",
        "enqueuedTime": "timestamp publishtime enqueuedtimeutc enqueuedat",
        "creationTime": "eventtime time createdat created",
        "messageId": "id msgid",
        "subject": "label routingkey jmstype",
        "priority": "jmspriority prio",
        "ttl": "timetolive expiration ttlms",
        "deliveryTime": "delay scheduledenqueuetime delayuntil",
        "contentEncoding": "contentencoded",
    }
)


def refusal(names: Iterable[str]) -> str | None:
    """Return why Spark's options for other places than a queue are refused, and the alternative."""
    lowered = {name.lower() for name in names}
    return next((text for name, text in _REFUSED.items() if name in lowered), None)


def for_option(name: str, known: Iterable[str]) -> str:
    """Return the end of the sentence "there is no option …": `: did you mean …?`, or a full stop."""
    guess = _guess(name, list(known), _OPTIONS)
    if guess is None and name.lower().startswith(("kafka.", "eventhubs.", "pulsar.")):
        guess = "leave it out, settings of other connectors have no meaning here"
    return "." if guess is None else f": {guess}." if " " in guess else f": did you mean {guess}?"


def for_column(name: str, known: Iterable[str]) -> str:
    known = list(known)
    guess = _guess(name, known, _COLUMNS)
    if guess is None or guess not in known:
        return "."
    return f": did you mean {guess!r}?" + (" Names are case-sensitive here." if guess.lower() == name.lower() else "")


def _guess(name: str, known: list[str], foreign: dict[str, str]) -> str | None:
    ours = nearest(name, known)
    if ours is not None and plain(ours) == plain(name):
        return ours
    return foreign.get(plain(name), ours)


class SelectorHints:
    """Hints about names in a selector that may be meant as fields, each once in the driver's log."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self, hints: Iterable[str]) -> None:
        for hint in hints:
            if hint not in self._logged:
                self._logged.add(hint)
                log.warning("option selector: %s", hint)

    def log_of(self, selector: str | None) -> None:
        """For a selector that tasks evaluate, which do not report whether messages have the property."""
        selectors = executor_modules.module("selectors")
        self.log(selectors.hints_of(selectors.parse_optional(selector)))
