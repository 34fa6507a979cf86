"""Commands that the lifetime of a queue or an exchange depends on."""

from __future__ import annotations

from dataclasses import dataclass

from .command import Command


@dataclass(frozen=True)
class OpenLink(Command[int]):
    """A link that the lifetime of a queue or an exchange depends on, besides subscriptions. Reply: its number."""

    node: str
    makes: bool = False  # the node was made for this link
    receives: bool = False
    owner: str | None = None  # connection; with `makes` it alone may receive from the node


@dataclass(frozen=True)
class CloseLink(Command[None]):
    """Nothing happens if the link or its node is gone."""

    node: str
    link: int


@dataclass(frozen=True)
class EndNode(Command[bool]):
    """The end of a queue or an exchange, if its lifetime is over. Reply: whether it was."""

    node: str
