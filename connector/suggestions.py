"""Suggestions for an unknown option or column: the name that may be meant, or an alternative.

Options by which Spark itself names another place than a queue are refused with an alternative. Only users set options such as
`timestampAsOf` and `mergeSchema`. `partitionBy` and `clusterBy` pass no option to a source in Python: Spark refuses them in a
batch write, and ignores them in a stream.

Other names are compared in this order: our own names in another notation (`message_id`, `Max-Messages-Per-Trigger`), the names of
the connectors for Kafka, Pulsar and Event Hubs, and names similar to ours.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable

from ..broker_core import executor_modules
from ..broker_core.similar import nearest, plain

log = logging.getLogger("penstock")

NO_TABLE = (
    "a table of Spark's catalog cannot be a queue, because Spark 4.2 does not pass its options to a source in Python. A view can:"
    " CREATE TEMPORARY VIEW orders USING amqp OPTIONS (url '…', queue '…'). With columns, such as VIEW out (body STRING, subject"
    " STRING), it also takes INSERT INTO"
)
_NO_PATH = (
    "a path has no meaning for the format amqp: name the queue with the option queue, and leave the path out of load(), save()"
    " and start(). Call start() instead of toTable(), which passes the path of a table"
)
_REFUSED = {
    "provider": NO_TABLE,  # by CREATE TABLE, with `owner`, and with each of the user's options a second time as `option.NAME`
    "path": _NO_PATH,  # by load(path), save(path), start(path) and toTable(name)
    "paths": _NO_PATH,  # by load([path, …])
}

#: Options of other connectors, in `similar.plain` form: one of ours, or, with a blank in it, an alternative.
_OPTIONS = {
    **dict.fromkeys(("kafkabootstrapservers", "bootstrapservers", "serviceurl", "adminurl", "brokerurl", "broker"), "url"),
    **dict.fromkeys(("host", "hostname", "endpoint", "uri", "address"), "url"),
    "eventhubsconnectionstring": "connectionString",
    **dict.fromkeys(("subscribe", "assign", "topic", "topics", "eventhubsname", "entitypath", "queuename", "queues"), "queue"),
    **dict.fromkeys(
        ("subscribepattern", "topicspattern", "topicpattern"), "name the queues in queue, up to 128 with commas between them"
    ),
    **dict.fromkeys(
        ("startingoffsets", "startingoffset", "startingposition", "startingpositions", "eventhubsstartingposition"),
        "a stream takes the waiting messages; a batch read, and mode=replay, begin at startingSequence or startingTimestamp",
    ),
    **dict.fromkeys(("endingoffsets", "endingoffset", "eventhubsendingposition", "endingposition"), "endingSequence"),
    **dict.fromkeys(("startingoffsetsbytimestamp", "startingtime", "since"), "startingTimestamp"),
    **dict.fromkeys(("endingoffsetsbytimestamp", "endingtime", "until"), "endingTimestamp"),
    **dict.fromkeys(
        ("maxoffsetspertrigger", "maxeventspertrigger", "maxrowspertrigger", "maxrecordspertrigger", "maxfilespertrigger"),
        "maxMessagesPerTrigger",
    ),
    **dict.fromkeys(("maxrecordsperpartition", "maxrowsperpartition"), "maxMessagesPerPartition"),
    **dict.fromkeys(
        ("kafkagroupid", "groupid", "groupidprefix", "predefinedsubscription", "subscriptionname", "eventhubsconsumergroup"),
        "lease",
    ),
    **dict.fromkeys(("user", "login"), "userName"),
    **dict.fromkeys(("kafkasasljaasconfig", "kafkasaslmechanism", "authparams"), "use userName and password"),
    **dict.fromkeys(("kafkasecurityprotocol", "usetls", "ssl", "tls"), "use a url that begins with amqps:// or grpc+tls://"),
    **dict.fromkeys(("kafkassltruststorelocation", "tlstrustcertsfilepath", "truststore", "cafilepath"), "caFile"),
    **dict.fromkeys(("kafkasslkeystorelocation", "keystore"), "use certFile and keyFile"),
    **dict.fromkeys(("routingkey", "bindingkey"), "write exchange=EXCHANGE/ROUTING-KEY"),
    "includeheaders": "leave it out, the column properties is always there",
    "filter": "selector",
}
#: Columns of other connectors, likewise.
_COLUMNS = {
    **dict.fromkeys(("value", "payload", "data", "content", "text"), "body"),
    **dict.fromkeys(("key", "partitionkey", "messagegroup", "sessionid"), "groupId"),
    **dict.fromkeys(("topic", "entitypath", "eventhub", "topicname"), "queue"),
    **dict.fromkeys(("headers", "header", "messageproperties", "applicationproperties", "attributes"), "properties"),
    **dict.fromkeys(("offset", "sequence", "partition"), "sequenceNumber"),
    **dict.fromkeys(("timestamp", "publishtime", "enqueuedtimeutc", "enqueuedat"), "enqueuedTime"),
    **dict.fromkeys(("eventtime", "time", "createdat", "created"), "creationTime"),
    **dict.fromkeys(("id", "msgid"), "messageId"),
    **dict.fromkeys(("label", "routingkey", "jmstype"), "subject"),
    **dict.fromkeys(("jmspriority", "prio"), "priority"),
    **dict.fromkeys(("timetolive", "expiration", "ttlms"), "ttl"),
    **dict.fromkeys(("delay", "scheduledenqueuetime", "delayuntil"), "deliveryTime"),
    "contentencoded": "contentEncoding",
}


def refusal(names: Iterable[str]) -> str | None:
    """Return why options of these names are refused, and the alternative; None if they are accepted."""
    lowered = {name.lower() for name in names}
    return next((text for name, text in _REFUSED.items() if name in lowered), None)


def for_option(name: str, known: Iterable[str]) -> str:
    """Return the end of the sentence "there is no option …": `: did you mean …?`, or a full stop without a good guess."""
    guess = _guess(name, list(known), _OPTIONS)
    if guess is None and name.lower().startswith(("kafka.", "eventhubs.", "pulsar.")):
        guess = "leave it out, settings of other connectors have no meaning here"
    return "." if guess is None else f": {guess}." if " " in guess else f": did you mean {guess}?"


def for_column(name: str, known: Iterable[str]) -> str:
    """Return the end of the sentence "there is no column …": `: did you mean 'body'?`, or a full stop without a good guess."""
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
    """Hints about names in the option `selector` that may be meant as fields, each once in the driver's log."""

    def __init__(self) -> None:
        self._logged: set[str] = set()

    def log(self, hints: Iterable[str]) -> None:
        """Log new hints."""
        for hint in hints:
            if hint not in self._logged:
                self._logged.add(hint)
                log.warning("option selector: %s", hint)

    def log_of(self, selector: str | None) -> None:
        """Log the hints for a selector that tasks evaluate. Tasks do not report whether messages have the property."""
        selectors = executor_modules.module("selectors")
        self.log(selectors.hints_of(selectors.parse_optional(selector)))
