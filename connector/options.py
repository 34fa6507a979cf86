"""The options of the format `amqp`, checked before anything starts. Names are case-insensitive, like Spark's."""

from __future__ import annotations

import copy
import math
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from datetime import datetime, timezone
from typing import Any, NamedTuple

from ..broker_core import executor_modules, moments, notations, quantities
from ..broker_core.client import shared_access
from ..broker_core.client.credentials import Credentials
from ..broker_core.client.flight import check
from ..broker_core.client.shared_access import SharedAccess
from ..broker_core.errors import InvalidOption, InvalidRequest, InvalidSelector
from . import suggestions
from .access import BrokerAccess

#: Places of an option. A batch read browses, a stream acquires.
STREAM, READ, WRITE = "spark.readStream", "spark.read", "df.write and df.writeStream"
REPLAY = "spark.readStream with mode=replay"
ANYWHERE = (STREAM, REPLAY, READ, WRITE)

STATES = ("available", "acquired", "delayed", "deferred", "archived")
# As `broker_core.engine.columns.states.Outcome`.
OUTCOMES = ("accepted", "rejected", "purged", "expired", "replaced", "dead-lettered", "moved", "dropped")

#: Rows of one task: about a quarter of a second of reading. A task costs Spark about 50 ms.
DEFAULT_MESSAGES_PER_PARTITION = 1 << 19

TIMES = ("startingTimestamp", "endingTimestamp")

_MAX_LONG = 2**63 - 1
LARGEST = 256 << 20  # bytes of a message from a foreign broker: `client.amqp.dial.MAX_MESSAGE_OCTETS`
MAX_NAME, MAX_LEASE_TIMEOUT_S = 255, 3650 * 86400  # the broker's limits
MAX_QUEUES = 128  # each costs a request for every trigger, at each broker
MAX_BROKERS = 64  # each has a connection and a thread in the planner
MAX_READERS = 64  # of one connection; more would only divide the messages


class Option(NamedTuple):
    """`parse` raises ValueError or KeyError for an invalid value. For `TIMES` it also takes the current time and a zone."""

    name: str
    places: tuple[str, ...]
    allowed: str
    parse: Callable[..., Any]
    default: Any = None


def _whole(least: int, most: int = _MAX_LONG, units: Mapping[str, int] | None = None) -> Callable[[str], int]:
    def parse(text: str) -> int:
        value = int(text) if units is None else quantities.parse(text, units)
        if value != int(value) or not least <= value <= most:
            raise ValueError
        return int(value)

    return parse


def _pace(text: str) -> float:
    value = float(text)
    if not 0 <= value < math.inf:
        raise ValueError
    return value


def _flag(text: str) -> bool:
    return {"true": True, "false": False}[text.strip().lower()]


def _one_of(*names: str) -> Callable[[str], str]:
    by_lower = {name.lower(): name for name in names}
    return lambda text: by_lower[text.strip().lower()]


def _states(text: str) -> tuple[str, ...]:
    named = {name.strip().lower() for name in text.split(",")}
    if not named <= set(STATES):
        raise ValueError
    return tuple(state for state in STATES if state in named)


def _name(text: str) -> str:
    if not text.strip() or len(text) > MAX_NAME or text != text.strip():
        raise ValueError
    return text


def _queues(text: str) -> tuple[str, ...]:
    """Two commas are one comma within a name, since no name is empty."""
    if "\0" in text:
        raise ValueError
    names = [name.replace("\0", ",") for name in text.replace(",,", "\0").split(",")]
    queues = tuple(_name(name.strip() if len(names) > 1 else name) for name in names)
    if len(queues) > MAX_QUEUES or len(set(queues)) < len(queues):
        raise ValueError
    return queues


def _exchange(text: str) -> tuple[str, str | None]:
    """Without a routing key, it is each row's subject."""
    name, slash, key = text.partition("/")
    if len(key) > MAX_NAME:
        raise ValueError
    return _name(name), key if slash else None


def _lease(text: str) -> str:
    # The form of a lease without the option: a checkpoint must show whether the option was set.
    if RANDOM_LEASE.fullmatch(text):
        raise ValueError
    return _name(text)


def _urls(text: str) -> str:
    urls = [_url(url.strip()) for url in text.split(",")]
    if len(urls) > MAX_BROKERS:
        raise ValueError
    twice = next((url for url in urls if urls.count(url) > 1), None)
    if twice is not None:
        raise InvalidOption(f"option url names {twice} twice: name each broker once")
    return ",".join(urls)


def _url(text: str) -> str:
    if "@" in text:
        raise InvalidOption("option url: it must not hold a user; urls end up in logs, so use the options userName and password")
    host = r"(\[[0-9a-fA-F:.]+\]|[^/:\s\[\]]+)"
    if not re.fullmatch(rf"grpc(\+tls)?://{host}:[0-9]{{1,5}}|amqps?://{host}(:[0-9]{{1,5}})?", text):
        raise ValueError
    return text


def _selector(text: str) -> str | None:
    """Return the text unchanged: a foreign broker may read the canonical text differently."""
    try:
        with executor_modules.own_errors():
            return None if executor_modules.module("selectors").parse_optional(text) is None else text
    except InvalidRequest as error:
        raise InvalidSelector(f"option selector: {error}") from None


def _connection_string(text: str) -> shared_access.ConnectionString:
    """Errors repeat no part of the string."""
    try:
        return shared_access.parse(text)
    except InvalidRequest as error:
        raise InvalidOption(f"option connectionString: {error}") from None


def _given(text: str) -> str:
    if not text:
        raise ValueError
    return text


def _folder(text: str) -> str:
    """One or several with commas. In front of `@`, an Azure url has a container, and an S3 url a key."""
    for scheme, rest in re.findall(r"([\w+.-]+)://(.*?)(?=,\s*[\w+.-]+://|$)", text, re.DOTALL):
        keyed = scheme.lower().startswith("s3") and "@" in rest.partition("/")[0]
        if keyed or ":" in rest.rpartition("@")[0] or "?" in rest:
            raise InvalidOption(
                "option spool: it must not hold a key, a password or a query (?…); urls end up in logs, so give keys by the"
                " environment"
            )
    return _given(text)


RANDOM_LEASE = re.compile(r"q-[0-9a-f]{32}")
_ANY_LEASE = "q-" + "0" * 32

_COUNT = "a whole number, at least 1"

_TIME = 'a time such as 600, "10m" or "2h", at least 60 seconds, at most 3650d'
_QUEUES = (
    f"the name of a queue, or for a read up to {MAX_QUEUES} different names separated by commas. A name has up to 255"
    " characters. A name is without '/', except for addresses of other brokers. A comma within a name is written twice"
)
_URL = (
    "amqp://HOST[:PORT], amqps://HOST[:PORT], grpc://HOST:PORT or grpc+tls://HOST:PORT, or up to"
    f" {MAX_BROKERS} of these separated by commas"
)

OPTIONS: tuple[Option, ...] = (
    Option("url", ANYWHERE, _URL, _urls),
    Option("queue", ANYWHERE, _QUEUES, _queues),
    Option("connectionString", ANYWHERE, "a connection string of Azure Service Bus", _connection_string),
    # Login. The driver reads the files: executors need none of them.
    Option("userName", ANYWHERE, "the name of a user, not empty", _given),
    Option("password", ANYWHERE, "a text", str),
    Option("caFile", ANYWHERE, "a file with CA certificates in PEM", _given),
    Option("certFile", ANYWHERE, "a file with a certificate in PEM", _given),
    Option("keyFile", ANYWHERE, "a file with the certificate's key in PEM, not encrypted", _given),
    Option("maxMessagesPerTrigger", (STREAM, REPLAY), _COUNT, _whole(1)),
    Option("maxBytesPerTrigger", (STREAM,), 'a size such as 1048576 or "64m", at least 1', _whole(1, units=quantities.SIZES)),
    Option("lease", (STREAM,), "a name up to 255 characters that is not of the form q-<32 hex digits>", _lease),
    Option("leaseTimeout", (STREAM,), _TIME, _whole(60, MAX_LEASE_TIMEOUT_S, quantities.TIMES)),
    Option("failOnDataLoss", (STREAM, REPLAY, WRITE), "true or false", _flag, True),
    Option("failOnBrokerLoss", (STREAM,), "true or false", _flag, True),
    # Reading a stream from a foreign broker.
    Option(
        "spool",
        (STREAM,),
        "a folder that driver and executors reach: a path, or a url such as s3a://BUCKET/FOLDER; one for each of several urls",
        _folder,
    ),
    Option("settle", (STREAM,), "spooled or committed", _one_of("spooled", "committed"), "spooled"),
    Option("dedupe", (STREAM,), "messageId or none", _one_of("messageId", "none"), "messageId"),
    Option("dedupeWindow", (STREAM,), _COUNT, _whole(1), 1_000_000),
    Option("minReaders", (STREAM,), "a whole number, 1 to 64", _whole(1, MAX_READERS), 1),
    Option("maxMessageBytes", (STREAM,), "a size up to 2g, such as 512m", _whole(1, 1 << 31, quantities.SIZES), LARGEST),
    Option(
        "mode",
        (STREAM, REPLAY, READ),
        "acquire or replay (a stream) or browse (a batch read)",
        _one_of("acquire", "replay", "browse"),
    ),
    Option("selector", (STREAM, REPLAY, READ), "a selector in the syntax of JMS, such as colour = 'red' AND size > 5", _selector),
    Option("minPartitions", (STREAM, REPLAY, READ), _COUNT, _whole(1), 1),
    Option("maxMessagesPerPartition", (STREAM, REPLAY, READ), _COUNT, _whole(1), DEFAULT_MESSAGES_PER_PARTITION),
    # A write accepts it too, so that one view serves SELECT and INSERT.
    Option("invalidText", ANYWHERE, "null or error", _one_of("null", "error"), "null"),
    Option("pace", (REPLAY,), "0 (as fast as it goes), or how many times as fast as it came, such as 1 or 0.5", _pace, 0),
    # Batch reads.
    Option("states", (READ,), f"a comma-separated list of {', '.join(STATES)}", _states, ("available",)),
    Option("startingSequence", (REPLAY, READ), "a sequence number (included), at least 0", _whole(0)),
    Option("endingSequence", (REPLAY, READ), "a sequence number (included), at least 0", _whole(0)),
    Option("startingTimestamp", (REPLAY, READ), moments.FORMS, moments.parse),
    Option("endingTimestamp", (REPLAY, READ), moments.FORMS, moments.parse),
    Option("outcome", (REPLAY, READ), f"one of {', '.join(OUTCOMES)}", _one_of(*OUTCOMES)),
    Option("recordedAfter", (READ,), "the number of a recording, at least 0", _whole(0), 0),
    Option("pushdown", (READ,), "true (only with spark.sql.python.filterPushdown.enabled=true) or false", _flag, False),
    Option("exchange", (WRITE,), "the name of an exchange, or EXCHANGE/ROUTING-KEY, up to 255 characters each", _exchange),
    Option(
        "operation",
        (WRITE,),
        "send (rows become messages) or settle (rows are outcomes of messages)",
        _one_of("send", "settle"),
        "send",
    ),
    Option("txnAppId", (WRITE,), "a text up to 255 characters", _name),
    Option("txnVersion", (WRITE,), "a whole number, at least 0", _whole(0)),
    Option("ignoreUnknownColumns", (WRITE,), "true or false", _flag, False),
    # Writing to a foreign broker.
    Option("duplicateIdProperty", (WRITE,), "the name of an application property, up to 255 characters", _name),
    Option(
        "sendTimeout", (WRITE,), 'a time such as 60, "60s" or "10m", at least 1 second', _whole(1, 86_400, quantities.TIMES), 60
    ),
    # Spark passes its own options to the sink of a stream. A test asks a running Spark for all of them.
    Option("checkpointLocation", (WRITE,), "a path", str),
    Option("queryName", (WRITE,), "a text", str),
)
_WRONG_MODES = {
    (STREAM, "browse"): "option mode=browse is for spark.read; a stream acquires its messages, so leave mode out",
    (READ, "replay"): (
        "option mode=replay is for spark.readStream (with trigger(availableNow=True) it ends): for a batch read leave mode out,"
        " and set states=archived"
    ),
    (READ, "acquire"): (
        "option mode=acquire is for spark.readStream (with trigger(availableNow=True) it ends when the queue is empty). A batch"
        " read has no commit that could settle messages; use mode=browse, or leave it out"
    ),
}
FOREIGN_ONLY = ("duplicateIdProperty", "sendTimeout")
_BY_NAME = {option.name.lower(): option for option in OPTIONS}


class Options(dict[str, Any]):
    """The value of every option. `given` are the names that the user wrote, `relative` those with times relative to `now`.

    Only `access` contains the password.
    """

    def __init__(self, options: Mapping[str, str], now: datetime | None = None) -> None:
        super().__init__({option.name: option.default for option in OPTIONS})
        self.given: set[str] = set()
        self.relative: set[str] = set()
        now = now or datetime.now(timezone.utc)
        refusal = suggestions.refusal(options)
        if refusal is not None:
            raise InvalidOption(refusal)
        for name, text in options.items():
            option = _BY_NAME.get(name.lower())
            if option is None:
                known = sorted(option.name for option in OPTIONS)
                suggestion = suggestions.for_option(name, known)
                raise InvalidOption(f"there is no option {name!r}{suggestion} Allowed are {', '.join(known)}")
            if option.name in self.given:
                raise InvalidOption(f"option {option.name} is given twice: leave {name} out")
            self[option.name] = value = _parse(option, text, now)
            if isinstance(value, moments.Moment):
                self[option.name] = value.micros
                if value.is_relative:
                    self.relative.add(option.name)
            self.given.add(option.name)
        shared = self._shared()
        _check_together(self)
        self.waits = True
        self.access = self._access(shared)

    def _shared(self) -> SharedAccess | None:
        string: shared_access.ConnectionString | None
        string, self["connectionString"] = self["connectionString"], None
        if string is None:
            return None
        for name in ("url", "userName", "password", "certFile", "keyFile"):
            if name in self.given:
                raise InvalidOption(
                    f"options connectionString and {name}: leave {name} out, since the connection string contains it"
                )
        self["url"] = string.url
        if string.entity is not None and self["queue"] is None and self["exchange"] is None:
            self["queue"] = (string.entity,)
        return string.access

    def _access(self, shared: SharedAccess | None) -> BrokerAccess:
        password, self["password"] = self["password"], None
        if (self["userName"] is None) != (password is None):
            raise InvalidOption("options userName and password go together: give both, or neither")
        if self["keyFile"] is not None and self["certFile"] is None:
            raise InvalidOption("option keyFile has no meaning without certFile: give both")
        try:
            credentials = Credentials.from_files(self["userName"], password, self["caFile"], self["certFile"], self["keyFile"])
            for url in self.urls:
                check(url, credentials)
        except InvalidRequest as error:
            raise InvalidOption(f"options url, userName, caFile, certFile, keyFile: {error}") from None
        return BrokerAccess(next(iter(self.urls), ""), replace(credentials, shared=shared), largest=self["maxMessageBytes"])

    @property
    def urls(self) -> list[str]:
        return [] if self["url"] is None else self["url"].split(",")

    @property  # with one broker, a comma is part of the name
    def spools(self) -> list[str]:
        return [folder.strip() for folder in self["spool"].split(",")] if len(self.urls) > 1 else [self["spool"]]

    def per_broker(self) -> list[Options]:
        return [self._at(url) for url in self.urls]

    def _at(self, url: str) -> Options:
        options = copy.copy(self)
        least = -(-self["minPartitions"] // len(self.urls))
        options.update(url=url, minPartitions=least)
        if self["spool"] is not None:
            options["spool"] = self.spools[self.urls.index(url)]
        if self["mode"] == "replay" and self["maxMessagesPerTrigger"] is not None:
            options["maxMessagesPerTrigger"] = max(1, self["maxMessagesPerTrigger"] // len(self.urls))
        options.access = self.access.of(url)
        options.waits = self["failOnBrokerLoss"]
        return options

    @property
    def description(self) -> str:
        return f"amqp[{', '.join(self['queue'] or ())} @ {', '.join(url.partition('://')[2] for url in self.urls)}]"

    def check_names(self) -> None:
        """Refuse names with slashes, which only addresses of foreign brokers have."""
        for queue in self["queue"] or ():
            if "/" in queue:
                advice = notations.advice(queue)
                remedy = f"it must be {_QUEUES}" if advice is None else f"{advice} (this broker is a Penstock)"
                raise InvalidOption(f"option queue cannot be {queue!r}; {remedy}")

    def check_for(self, place: str) -> None:
        """Refuse options without a meaning in this place, and missing ones."""
        for name in sorted(self.given):
            places = _BY_NAME[name.lower()].places
            if place not in places:
                raise InvalidOption(f"option {name} has no meaning for {place}; it is for {' and '.join(places)}")
        if not self.given:
            raise InvalidOption(f"option url is missing; it must be {_URL}. Is this a table? Then: {suggestions.NO_TABLE}")
        if self["url"] is None:
            raise InvalidOption(f"option url is missing; it must be {_URL} (`penstock serve` prints them)")
        if self["queue"] is None and place != WRITE:
            raise InvalidOption(f"option queue is missing; {place} needs the name of a queue")
        if place in (READ, REPLAY):
            self.check_names()
        queues = self["queue"] or ()
        if place == WRITE and len(queues) > 1:
            raise InvalidOption(f"option queue names {len(queues)} queues; {WRITE} needs one, or a column 'queue' in each row")
        if place == STREAM and len(queues) > 1 and max(map(len, queues)) + len(self["lease"] or _ANY_LEASE) >= MAX_NAME:
            raise InvalidOption(
                f"a query over several queues has leases named LEASE/QUEUE, up to {MAX_NAME} characters: choose a shorter lease,"
                f" or give queue {max(queues, key=len)!r} a query of its own"
            )
        if place == REPLAY and len(queues) > 1:
            raise InvalidOption(f"option queue names {len(queues)} queues; a replay is of one: start a query for each")
        if (place, self["mode"]) in _WRONG_MODES:
            raise InvalidOption(_WRONG_MODES[place, self["mode"]])


def _parse(option: Option, text: str, now: datetime) -> Any:
    try:
        return option.parse(text, now, timezone.utc) if option.name in TIMES else option.parse(text)
    except (ValueError, KeyError, TypeError, AttributeError, OverflowError):
        raise InvalidOption(f"option {option.name} cannot be {text!r}; it must be {option.allowed}") from None


def _check_together(options: Options) -> None:
    if options["queue"] is not None and options["exchange"] is not None:
        raise InvalidOption("options queue and exchange: name one of them; an exchange leads rows to the queues bound to it")
    for name in ("queue", "exchange"):
        if options["operation"] == "settle" and options[name] is not None:
            raise InvalidOption(f"option {name} has no meaning with operation=settle: the column 'delivery' names the message")
    if options["spool"] is not None and len(set(options.spools)) != max(1, len(options.urls)):
        raise InvalidOption(
            f"option url names {len(options.urls)} brokers, option spool {len(set(options.spools))} folders: each foreign broker"
            " has its own folder; name them in the order of the urls, separated by commas"
        )
    for name in ("settle", "dedupe", "dedupeWindow", "minReaders", "maxMessageBytes"):
        if name in options.given and options["spool"] is None:
            raise InvalidOption(f"option {name} is for a stream from another broker than Penstock: also give the option spool")
    for name in ("lease", "leaseTimeout"):
        if name in options.given and options["spool"] is not None:
            raise InvalidOption(f"option {name} has no meaning with spool: only Penstock has leases")
    if (options["txnAppId"] is None) != (options["txnVersion"] is None):
        raise InvalidOption("options txnAppId and txnVersion go together: name both, or neither")
    if options["outcome"] is not None and options["states"] != ("archived",) and options["mode"] != "replay":
        raise InvalidOption("option outcome is for settled messages only: also set the option states to archived")
    if options["recordedAfter"] and "archived" not in options["states"]:
        raise InvalidOption("option recordedAfter is for settled messages only: also set the option states to archived")
    if None not in (first := options["startingSequence"], last := options["endingSequence"]) and first > last:
        raise InvalidOption("option startingSequence lies after endingSequence: nothing could be read")
    if options["mode"] != "replay" or not options.relative:
        check_times(options["startingTimestamp"], options["endingTimestamp"])


def check_times(since: int | None, until: int | None) -> None:
    """A replay with a relative time calls this only when it begins, since a later restart must not fail."""
    if since is not None and until is not None and since >= until:
        raise InvalidOption(
            f"option startingTimestamp, {moments.written(since)}, is not before endingTimestamp, {moments.written(until)}:"
            " nothing could be read"
        )
