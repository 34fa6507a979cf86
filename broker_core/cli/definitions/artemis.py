"""ActiveMQ Artemis's broker.xml. docs/queues.md has the table."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from xml.etree.ElementTree import Element, TreeBuilder
from xml.parsers import expat

from ... import errors
from ...engine.model.topics import Trie
from .queues import PlannedQueue, break_cycles
from .steps import ImportStep, applied_note, bind, declare_exchange

MAX_DEPTH = 32  # of elements
MAX_QUEUES, MAX_SETTINGS = 20_000, 500
_SIZES = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_LAST_VALUE_KEY = "_AMQ_LVQ_NAME"
#: By address-full-policy. PAGE, the default, has no limit here: every message is on the disk.
_OVERFLOW = {"BLOCK": "block", "FAIL": "reject", "DROP": "ring"}


def is_xml(data: bytes) -> bool:
    return data.lstrip(b"\xef\xbb\xbf \t\r\n").startswith(b"<")


def steps(data: bytes) -> list[ImportStep]:
    """Raises InvalidRequest for another file."""
    core = next((element for element in parse(data).iter() if element.tag == "core"), None)
    if core is None:
        raise errors.InvalidRequest("the file has no element <core>, as a broker.xml of ActiveMQ Artemis has")
    settings = [_Setting(element) for element in core.iterfind("address-settings/address-setting")]
    addresses = core.findall("addresses/address")
    count = sum(len(list(address.iter("queue"))) for address in addresses)
    if count > MAX_QUEUES or len(settings) > MAX_SETTINGS:
        raise errors.InvalidRequest(f"an import reads at most {MAX_QUEUES:,} queues and {MAX_SETTINGS:,} address settings")
    names = {_name(address): [_name(queue) for queue in address.iter("queue")] for address in addresses}
    patterns = Trie()
    for number, setting in enumerate(settings):
        patterns.add(setting.match, number)
    values = {name: _values_of(name, settings, patterns) for name in names}
    queues = [ArtemisQueue(queue, _name(address), values, names) for address in addresses for queue in address.iter("queue")]
    break_cycles(queues)
    return [
        *(queue.step() for queue in queues),
        *(step for address in addresses for step in _address(address)),
        *(setting.step() for setting in settings),
        *(ImportStep(f"divert {_name(item)}", [_DIVERT]) for item in core.iterfind("diverts/divert")),
        *(ImportStep(f"permissions on {_name(item, 'match')}", [_ROLES]) for item in core.iterfind(_SECURITY)),
    ]


_SECURITY = "security-settings/security-setting"
_DIVERT = "bind its queue to an exchange instead, with --selector for its filter"
_ROLES = "their users and roles are in other files; `penstock user` and `penstock permit` replace them"


def parse(data: bytes) -> Element:
    """Parse XML without a document type, and so without entities. Namespaces are removed."""
    builder, parser, depth = TreeBuilder(), expat.ParserCreate(), 0

    def refuse(*_: object) -> None:
        raise errors.InvalidRequest("a document type (<!DOCTYPE) is not allowed")

    def start(name: str, attributes: dict[str, str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_DEPTH:
            raise errors.InvalidRequest(f"elements are nested more than {MAX_DEPTH} deep")
        builder.start(name.rpartition(":")[2], attributes)

    def end(name: str) -> None:
        nonlocal depth
        depth -= 1
        builder.end(name.rpartition(":")[2])

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler, parser.EndElementHandler, parser.CharacterDataHandler = start, end, builder.data
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise errors.InvalidRequest(f"the file is not XML: {error}") from None
    return builder.close()


def _name(element: Element, attribute: str = "name") -> str:
    name = element.get(attribute)
    if not name:
        raise errors.InvalidRequest(f"<{element.tag}> has no attribute {attribute}")
    return name


class _Setting:
    """An address setting. `match`: words, `*` for one word, `#` for any number."""

    def __init__(self, element: Element) -> None:
        self.match = _name(element, "match")
        self.values = {child.tag: (child.text or "").strip() for child in element}
        self.applied = 0

    @property
    def specificity(self) -> tuple[int, int, int]:
        return -self.match.count("#"), -self.match.count("*"), len(self.match)

    def step(self) -> ImportStep:
        return ImportStep(f"address setting {self.match}", [applied_note(self.applied)])


def _values_of(address: str, settings: Sequence[_Setting], patterns: Trie) -> dict[str, str]:
    """Return the merged values of settings, the most specific one last. `patterns`: those of `settings`."""
    values: dict[str, str] = {}
    matching = [settings[number] for number in sorted(patterns.match(address))]
    for setting in sorted(matching, key=lambda item: item.specificity):
        values |= setting.values
        setting.applied += 1
    return values


def _address(address: Element) -> Iterator[ImportStep]:
    """An exchange is needed if the address delivers to several queues, or to a queue of another name."""
    name = _name(address)
    anycast, multicast = list(address.iterfind("anycast/queue")), list(address.iterfind("multicast/queue"))
    if len(anycast) > 1:
        text = "Artemis gives each message to one of its queues: send to a queue, or let several consumers share one"
        yield ImportStep(f"address {name}", [text])
        anycast = []
    bound = [*(queue for queue in anycast if _name(queue) != name), *multicast]
    if bound or address.find("multicast") is not None:
        yield declare_exchange(name, "fanout", {"unroutable": "drop"})
    for queue in bound:
        selector = _filter_of(queue)
        yield bind(name, _name(queue), **({} if selector is None else {"selector": selector}))


def _filter_of(queue: Element) -> str | None:
    element = queue.find("filter")
    return None if element is None else element.get("string")


class ArtemisQueue(PlannedQueue):
    """A queue of an address. `values`: the merged settings by address."""

    def __init__(
        self, element: Element, address: str, values: Mapping[str, Mapping[str, str]], names: Mapping[str, Sequence[str]]
    ) -> None:
        super().__init__(_name(element))
        self._element, self._values = element, values[address]
        self._last_value()
        self._consumers()
        self._limits()
        self._retries()
        self._dead_letters(names)
        if self.name == address and _filter_of(element) is not None:
            self.notes.append("filter: a queue of its own address has none here; bind it to an exchange with a selector")

    def _get(self, attribute: str, setting: str) -> str | None:
        value = self._element.get(attribute)
        return self._values.get(setting) if value is None else value

    def _number(self, name: str, text: str | None, read: Callable[[str], int] = int) -> int | None:
        """Return a number above 0. Others mean no limit."""
        try:
            number = None if text is None else read(text)
        except ValueError:
            self.notes.append(f"{name}: {text!r:.80} has no counterpart")
            return None
        return number if number is not None and number > 0 else None

    def _last_value(self) -> None:
        key = self._get("last-value-key", "default-last-value-key")
        if key or self._get("last-value", "default-last-value-queue") == "true":
            self.type = "lastvalue"
            self.options["key"] = f"properties.{key or _LAST_VALUE_KEY}"

    def _consumers(self) -> None:
        if self._get("exclusive", "default-exclusive-queue") == "true":
            self.options["consumers"] = "single"
        elif (most := self._number("max-consumers", self._get("max-consumers", "default-max-consumers"))) == 1:
            self.options["consumers"] = "exclusive"
        elif most is not None:
            self.notes.append("max-consumers: here it is 1 or unlimited")
        if self._get("purge-on-no-consumers", "default-purge-on-no-consumers") == "true":
            self.notes.append("purge-on-no-consumers has no counterpart")

    def _limits(self) -> None:
        ring = self._number("ring-size", self._get("ring-size", "default-ring-size"))
        if ring is not None:
            self.options |= {"maxMessages": ring, "overflow": "ring"}
            return
        limits = {
            "maxMessages": self._number("max-size-messages", self._values.get("max-size-messages")),
            "maxBytes": self._number("max-size-bytes", self._values.get("max-size-bytes"), _size),
        }
        limits = {option: limit for option, limit in limits.items() if limit is not None}
        policy = self._values.get("address-full-policy", "PAGE").upper()
        if limits and policy in _OVERFLOW:
            self.options |= {**limits, "overflow": _OVERFLOW[policy]}
            if policy == "DROP":
                self.notes.append("address-full-policy DROP: a ring drops the oldest message, and Artemis the newest")
        elif limits:
            self.notes.append(f"address-full-policy {policy:.80}: without a limit, because every message is on the disk")

    def _retries(self) -> None:
        attempts = self._values.get("max-delivery-attempts")
        if attempts == "-1":
            self.options["maxAttempts"] = 0  # no limit
        for setting, option in (
            ("max-delivery-attempts", "maxAttempts"),
            ("redelivery-delay", "retryDelay"),
            ("max-redelivery-delay", "maxRetryDelay"),
            ("expiry-delay", "messageTtl"),
        ):
            number = self._number(setting, self._values.get(setting))
            if number is not None:
                self.options[option] = number
        factor = self._number("redelivery-delay-multiplier", self._values.get("redelivery-delay-multiplier"), _whole)
        if factor is not None and factor > 1:
            self.options["retryBackoff"] = factor

    def _dead_letters(self, names: Mapping[str, Sequence[str]]) -> None:
        address, expiry = self._values.get("dead-letter-address"), self._values.get("expiry-address")
        if address:
            targets = names.get(address, [address])
            if len(targets) != 1:
                self.keep_dead_letters(f"address {address:.80} has {len(targets)} queues")
            elif targets[0] != self.name:
                self.options["deadLetterQueue"] = targets[0]
        if expiry and expiry == address and "deadLetterQueue" in self.options:
            self.options["expired"] = "deadLetter"
        elif expiry and expiry != self.name:
            self.notes.append(f"expiry-address {expiry:.80}: expired messages are archived")


def _size(text: str) -> int:
    match = re.fullmatch(r"(-?\d{1,15})\s*([KMG]?)(?:i?B)?", text, re.IGNORECASE)
    if match is None:
        raise ValueError
    return int(match[1]) * _SIZES[match[2].upper()]


def _whole(text: str) -> int:
    number = float(text)
    if not number.is_integer():
        raise ValueError
    return int(number)
