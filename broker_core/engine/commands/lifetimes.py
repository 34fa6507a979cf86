"""Commands that the lifetime of a queue or an exchange depends on."""

from __future__ import annotations

from dataclasses import dataclass

from .command import Command


@dataclass(frozen=True)
class OpenLink(Command[int]):
    """A new link to a queue or an exchange whose lifetime depends on links, in addition to subscriptions. Reply: its number."""

    node: str
    makes: bool = False  # the node was made for this link
    receives: bool = False
    owner: str | None = None  # connection of the link; with `makes` it alone may receive from the node


@dataclass(frozen=True)
class CloseLink(Command[None]):
    """The end of a link. Nothing happens if the link or its node is gone."""

    node: str
    link: int


@dataclass(frozen=True)
class EndNode(Command[bool]):
    """The end of a queue or an exchange if its lifetime is over: see `decide.lifetimes`. Reply: whether it was."""

    node: str
